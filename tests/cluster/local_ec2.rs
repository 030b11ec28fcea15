//! The sandbox in this process, and the adapter as a client of a local endpoint.

use std::net::SocketAddr;

use attachd::ec2::Ec2Client;
use attachd::sandbox::{Sandbox, SandboxOptions};
use aws_config::{BehaviorVersion, Region};
use aws_sdk_ec2::config::Credentials;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A sandbox on a free port; it ends with the test's runtime.
pub(crate) async fn start_sandbox(options: SandboxOptions) -> (Sandbox, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind to loopback");
    let address = listener.local_addr().expect("a bound address");
    let sandbox = Sandbox::new(options);
    let serving = sandbox.clone();
    tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
    (sandbox, address)
}

/// The adapter, with credentials that no local endpoint looks at.
pub(crate) async fn client_of(address: SocketAddr) -> Ec2Client {
    let shared = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .load()
        .await;
    Ec2Client::from_config(&shared, Some(format!("http://{address}"))).expect("a client")
}

/// The header of a JSON body.
pub(crate) const JSON: &str = "content-type: application/json";

/// One HTTP request with headers of its own; status and body of the answer.
pub(crate) async fn request(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("connect to loopback");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).await.expect("send a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}
