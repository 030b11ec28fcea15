//! What an attempt ends with when the wire does not do its part, on real sockets: one request, whatever happens.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::*;
use crate::kubernetes::connect;
use crate::model::ids::NodeName;
use crate::model::outcome::Answer;
use crate::model::time::{Now, Wall};

fn clock() -> Clock {
    Arc::new(|| Now { wall: Wall::from_millis(1_893_456_000_000), ..Now::default() })
}

fn client_of(port: u16) -> KubernetesClient {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let url = format!("http://127.0.0.1:{port}").parse().expect("a URL");
    let client = connect::client(kube::Config::new(url), Duration::from_secs(20)).expect("a client");
    KubernetesClient::new(client, clock())
}

fn get_node() -> KubernetesCall {
    KubernetesCall::GetNode { name: NodeName::new("n1") }
}

/// Reads one request's head.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
        head.extend(byte);
    }
    String::from_utf8(head).expect("text")
}

/// Answers every request with `answer` and closes its connection; gives the heads of all requests received.
async fn call_against(answer: &'static str, call: &KubernetesCall) -> (CallResult, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (heads, received) = std::sync::mpsc::channel();
    // Ends with the test process: it waits for a connection that must not come.
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = heads.send(read_head(&mut stream));
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let result = client_of(port).call(call).await;
    // A second attempt would come within milliseconds.
    tokio::time::sleep(Duration::from_millis(100)).await;
    (result, received.try_iter().collect())
}

#[tokio::test]
async fn an_answer_comes_back_read() {
    let answer = concat!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n",
        r#"{"metadata":{"name":"n1","uid":"n-1","resourceVersion":"6"}}"#
    );
    let (result, heads) = call_against(answer, &get_node()).await;
    assert!(matches!(result, CallResult::Done(Answer::Node(Some(_)))), "{result:?}");
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with("GET /api/v1/nodes/n1 HTTP/1.1\r\n"), "{}", heads[0]);
    assert!(heads[0].contains(concat!("user-agent: attachd/", env!("CARGO_PKG_VERSION"))), "{}", heads[0]);
}

/// kube's own policy, on by default, would repeat these fifteen times.
#[tokio::test]
async fn nothing_is_sent_twice() {
    for (answer, throttled) in [
        ("HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n", false),
        ("HTTP/1.1 504 Gateway Timeout\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n", false),
        ("HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n", true),
    ] {
        let (result, heads) = call_against(answer, &get_node()).await;
        assert_eq!(result == CallResult::Throttled, throttled, "{result:?}");
        assert_eq!(matches!(result, CallResult::Uncertain(_)), !throttled, "{result:?}");
        assert_eq!(heads.len(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_connection_cut_after_the_request_leaves_the_outcome_unknown() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\n{\"metadata\""] {
        let (result, heads) = call_against(answer, &get_node()).await;
        assert!(matches!(result, CallResult::Uncertain(_)), "{result:?}");
        assert_eq!(heads.len(), 1);
    }
}

#[tokio::test]
async fn where_nobody_listens_nothing_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    assert_eq!(client_of(port).call(&get_node()).await, CallResult::NotSent);
}

#[tokio::test]
async fn what_cannot_be_asked_is_not_sent() {
    let call = KubernetesCall::GetNode { name: NodeName::new("") };
    assert_eq!(client_of(1).call(&call).await, CallResult::NotSent);
}

#[tokio::test]
async fn silence_ends_with_the_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = client_of(listener.local_addr().expect("an address").port());
    assert_eq!(client.attempt_timeout, Duration::from_secs(10));
    client.attempt_timeout = Duration::from_millis(50);
    let result = client.call(&get_node()).await;
    assert_eq!(result, CallResult::Uncertain("no answer within 50ms".into()));
}
