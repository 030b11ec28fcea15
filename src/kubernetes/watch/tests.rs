//! Lists and watches against a scripted server: what is heard, and what is asked next, when things go wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::body::Body as ResponseBody;
use http::{Request as HttpRequest, Response};
use serde_json::{Value, json};

use super::*;
use crate::controller::event::{Kind, ObjectKey};
use crate::model::time::Now;

/// One answer of the server.
enum Answer {
    /// A whole body.
    Whole(u16, String),
    /// Lines of a watch; then the stream ends, breaks, or stays open.
    Lines(Vec<String>, Ending),
}

#[derive(Clone, Copy, PartialEq)]
enum Ending {
    InOrder,
    Cut,
    Open,
}

struct Server {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<String>>,
}

impl Server {
    fn answer(&self, request: &HttpRequest<Body>) -> Response<ResponseBody> {
        self.asked.lock().expect("unpoisoned").push(request.uri().to_string());
        let next = self.answers.lock().expect("unpoisoned").pop_front();
        let (code, body) = match next.unwrap_or(Answer::Lines(vec![], Ending::Open)) {
            Answer::Whole(code, body) => (code, ResponseBody::from(body)),
            Answer::Lines(lines, ending) => {
                let lines = lines.into_iter().map(|line| Ok::<_, std::io::Error>(line + "\n"));
                let lines = futures::stream::iter(lines.collect::<Vec<_>>());
                let body = match ending {
                    Ending::InOrder => ResponseBody::from_stream(lines),
                    Ending::Cut => {
                        let cut = Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
                        ResponseBody::from_stream(lines.chain(futures::stream::iter([cut])))
                    }
                    Ending::Open => ResponseBody::from_stream(lines.chain(futures::stream::pending())),
                };
                (200, body)
            }
        };
        Response::builder().status(code).body(body).expect("a response")
    }
}

/// Never waits long.
struct NoPause;

impl Iterator for NoPause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

impl Backoff for NoPause {
    fn reset(&mut self) {}
}

/// Watches until `count` events came and the server has been asked for every answer; what was heard, what was asked.
async fn hear<K: Watched>(answers: Vec<Answer>, count: usize) -> (Vec<String>, Vec<String>) {
    let expected = answers.len();
    let server = Arc::new(Server { answers: Mutex::new(answers.into()), asked: Mutex::new(vec![]) });
    let serving = Arc::clone(&server);
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        let response = serving.answer(&request);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let client = Client::new(service, "default");
    let (events, mut heard) = mpsc::channel(1);
    let sink = Sink { events, clock: Arc::new(Now::default) };
    let watch = Watch { client, sink, lists: ListStyle::Streaming, generation: 0 };
    let task = tokio::spawn(watch.run::<K>(NoPause));
    let mut all = Vec::new();
    let collect = async {
        while all.len() < count {
            all.push(told(heard.recv().await.expect("the watch goes on")));
        }
        while server.asked.lock().expect("unpoisoned").len() < expected {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = timeout(Duration::from_secs(10), collect).await.is_ok();
    assert!(in_time, "heard {all:#?} having asked {:#?}", server.asked.lock().expect("unpoisoned"));
    // Nothing more may come.
    sleep(Duration::from_millis(20)).await;
    while let Ok(event) = heard.try_recv() {
        all.push(told(event));
    }
    drop(heard);
    task.abort();
    let asked = server.asked.lock().expect("unpoisoned").clone();
    (all, asked)
}

fn told(event: Event) -> String {
    let name = |object: &Object| match object {
        Object::Node(node) => format!("{}@{}", node.name, node.resource_version),
        Object::Pod(pod) => pod.key.to_string(),
        Object::Unreadable(key) => format!("unreadable {key:?}"),
        other => format!("{other:?}"),
    };
    match event.kind {
        EventKind::Watch(WatchEvent::Begin { kind: _, generation }) => format!("begin {generation}"),
        EventKind::Watch(WatchEvent::Item { generation, object }) => format!("item {generation} {}", name(&object)),
        EventKind::Watch(WatchEvent::End { kind: _, generation }) => format!("end {generation}"),
        EventKind::Watch(WatchEvent::Applied(object)) => format!("applied {}", name(&object)),
        EventKind::Watch(WatchEvent::Deleted(ObjectKey::Node(name, uid))) => format!("deleted {name} {uid}"),
        other => format!("{other:?}"),
    }
}

fn node(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version }
    })
}

fn line(kind: &str, object: &Value) -> String {
    json!({ "type": kind, "object": object }).to_string()
}

fn added(name: &str, version: &str) -> String {
    line("ADDED", &node(name, version))
}

fn bookmark(version: &str, list_ends: bool) -> String {
    let mut metadata = json!({ "resourceVersion": version, "creationTimestamp": null });
    if list_ends {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    line("BOOKMARK", &json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata }))
}

fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason, "code": code })
}

fn error(code: u16, reason: &str) -> String {
    line("ERROR", &status(code, reason))
}

fn refusal(code: u16, reason: &str) -> Answer {
    Answer::Whole(code, status(code, reason).to_string())
}

fn page(names: &[&str], version: &str, token: &str) -> Answer {
    let items: Vec<Value> = names.iter().map(|name| node(name, "1")).collect();
    let metadata = json!({ "resourceVersion": version, "continue": token });
    Answer::Whole(
        200,
        json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items }).to_string(),
    )
}

const STREAMING: &str = "/api/v1/nodes?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
const PAGE_1: &str = "/api/v1/nodes?&limit=500";

fn from(version: &str) -> String {
    format!("/api/v1/nodes?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion={version}")
}

#[tokio::test]
async fn a_streaming_list_becomes_the_watch() {
    let lines = vec![
        added("n1", "1"),
        added("n2", "2"),
        bookmark("5", false),
        bookmark("7", true),
        line("MODIFIED", &node("n1", "8")),
        line("DELETED", &node("n2", "9")),
    ];
    let answers = vec![Answer::Lines(lines, Ending::InOrder), Answer::Lines(vec![added("n3", "10")], Ending::Open)];
    let (heard, asked) = hear::<NodeObject>(answers, 7).await;
    assert_eq!(
        heard,
        ["begin 1", "item 1 n1@1", "item 1 n2@2", "end 1", "applied n1@8", "deleted n2 uid-n2", "applied n3@10"]
    );
    // Consistent: no version asked for. Resumed after the last change.
    assert_eq!(asked, [STREAMING.to_owned(), from("9")]);
}

#[tokio::test]
async fn bookmarks_move_the_point_of_resumption() {
    let lines = vec![bookmark("7", true), bookmark("20", false)];
    let answers = vec![Answer::Lines(lines, Ending::InOrder), Answer::Lines(vec![added("n1", "21")], Ending::Open)];
    let (heard, asked) = hear::<NodeObject>(answers, 3).await;
    assert_eq!(heard, ["begin 1", "end 1", "applied n1@21"]);
    assert_eq!(asked, [STREAMING.to_owned(), from("20")]);
}

#[tokio::test]
async fn pods_without_a_node_are_left_out_at_the_server() {
    let pod =
        json!({ "metadata": { "namespace": "shop", "name": "db-0", "uid": "p", "resourceVersion": "1" }, "spec": {} });
    let answers = vec![Answer::Lines(vec![line("ADDED", &pod), bookmark("7", true)], Ending::Open)];
    let (heard, asked) = hear::<PodObject>(answers, 3).await;
    assert_eq!(heard, ["begin 1", "item 1 shop/db-0", "end 1"]);
    assert!(
        asked[0].starts_with("/api/v1/pods?&watch=true&timeoutSeconds=290&fieldSelector=spec.nodeName%21%3D&"),
        "{asked:?}"
    );
}

/// WatchList off: 422 (older: 400). The fallback stays for good.
#[tokio::test]
async fn without_streaming_lists_it_lists_in_pages() {
    for code in [400, 422] {
        let answers = vec![
            refusal(code, "Invalid"),
            page(&["n1"], "", "token&1"),
            page(&["n2"], "7", ""),
            Answer::Lines(vec![error(410, "Expired")], Ending::InOrder),
            page(&["n3"], "9", ""),
        ];
        let (heard, asked) = hear::<NodeObject>(answers, 7).await;
        assert_eq!(heard, ["begin 1", "item 1 n1@1", "item 1 n2@1", "end 1", "begin 2", "item 2 n3@1", "end 2"]);
        let second = format!("{PAGE_1}&continue=token%261");
        let all = [STREAMING.to_owned(), PAGE_1.to_owned(), second, from("7"), PAGE_1.to_owned(), from("9")];
        assert_eq!(asked, all);
    }
}

#[tokio::test]
async fn a_page_token_that_expires_starts_the_list_again() {
    let answers =
        vec![refusal(422, "Invalid"), page(&["n1"], "", "t"), refusal(410, "Expired"), page(&["n2"], "7", "")];
    let (heard, _) = hear::<NodeObject>(answers, 5).await;
    assert_eq!(heard, ["begin 1", "item 1 n1@1", "begin 2", "item 2 n2@1", "end 2"]);
}

/// kube's watcher asks for the same version for ever after this.
#[tokio::test]
async fn a_version_that_is_gone_leads_to_a_list_wherever_it_is_said() {
    for gone in [
        refusal(410, "Expired"),
        refusal(400, "BadRequest"),
        Answer::Lines(vec![error(410, "Expired")], Ending::InOrder),
    ] {
        let answers = vec![
            Answer::Lines(vec![added("n1", "1"), bookmark("7", true)], Ending::InOrder),
            gone,
            Answer::Lines(vec![bookmark("9", true)], Ending::Open),
        ];
        let (heard, asked) = hear::<NodeObject>(answers, 5).await;
        assert_eq!(heard, ["begin 1", "item 1 n1@1", "end 1", "begin 2", "end 2"]);
        assert_eq!(asked, [STREAMING.to_owned(), from("7"), STREAMING.to_owned()]);
    }
}

/// End proves absence: it may follow only a list of which nothing was missed.
#[tokio::test]
async fn a_list_that_breaks_off_never_ends() {
    let broken = [
        Answer::Lines(vec![added("n1", "1")], Ending::InOrder),
        Answer::Lines(vec![added("n1", "1")], Ending::Cut),
        Answer::Lines(vec![added("n1", "1"), error(500, "InternalError"), bookmark("7", true)], Ending::Open),
        Answer::Lines(vec![added("n1", "1"), "not json".to_owned(), bookmark("7", true)], Ending::Open),
        Answer::Lines(vec![added("n1", "1"), line("DELETED", &node("n2", "2")), bookmark("7", true)], Ending::Open),
        Answer::Lines(vec![added("n1", "1"), line("ADDED", &json!("n2")), bookmark("7", true)], Ending::Open),
        Answer::Lines(
            vec![added("n1", "1"), line("ADDED", &json!({ "metadata": {} })), bookmark("7", true)],
            Ending::Open,
        ),
    ];
    for first in broken {
        let second = Answer::Lines(vec![added("n1", "1"), added("n2", "2"), bookmark("7", true)], Ending::Open);
        let (heard, asked) = hear::<NodeObject>(vec![first, second], 6).await;
        assert_eq!(heard, ["begin 1", "item 1 n1@1", "begin 2", "item 2 n1@1", "item 2 n2@2", "end 2"]);
        assert_eq!(asked, [STREAMING, STREAMING]);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_list_is_not_an_empty_one() {
    let answers = vec![
        refusal(422, "Invalid"),
        Answer::Whole(200, "{}".to_owned()),
        Answer::Whole(200, "<html>".to_owned()),
        Answer::Whole(502, "<html>".to_owned()),
        Answer::Whole(
            200,
            json!({ "kind": "NodeList", "metadata": { "resourceVersion": "7" }, "items": [7] }).to_string(),
        ),
        page(&["n1"], "7", ""),
    ];
    let (heard, _) = hear::<NodeObject>(answers, 7).await;
    assert_eq!(heard, ["begin 1", "begin 2", "begin 3", "begin 4", "begin 5", "item 5 n1@1", "end 5"]);
}

/// G7: an odd object among good ones harms only itself, and is not taken for gone.
#[tokio::test]
async fn an_unreadable_object_is_reported_as_there() {
    let mut odd = node("n2", "2");
    odd["status"] = json!({ "volumesInUse": "everything" });
    let lines =
        vec![added("n1", "1"), line("ADDED", &odd), bookmark("7", true), line("MODIFIED", &odd), added("n3", "8")];
    let (heard, _) = hear::<NodeObject>(vec![Answer::Lines(lines, Ending::Open)], 6).await;
    let unreadable = "unreadable Node(n2, uid-n2)";
    assert_eq!(
        heard,
        [
            "begin 1",
            "item 1 n1@1",
            &format!("item 1 {unreadable}"),
            "end 1",
            &format!("applied {unreadable}"),
            "applied n3@8"
        ]
    );
}

#[tokio::test]
async fn a_change_that_cannot_be_read_at_all_is_made_good_by_a_list() {
    let bad = [
        "{\"type\":\"ADDED\",\"object\":".to_owned() + "x}",
        line("MODIFIED", &json!([])),
        line("MODIFIED", &json!({ "metadata": { "name": "n1" } })),
        line("DELETED", &json!({ "metadata": { "name": "n1", "resourceVersion": "8" } })),
    ];
    for bad in bad {
        let answers = vec![
            Answer::Lines(vec![bookmark("7", true), bad, added("n9", "9")], Ending::Open),
            Answer::Lines(vec![bookmark("9", true)], Ending::Open),
        ];
        let (heard, asked) = hear::<NodeObject>(answers, 4).await;
        assert_eq!(heard, ["begin 1", "end 1", "begin 2", "end 2"]);
        assert_eq!(asked, [STREAMING, STREAMING]);
    }
}

#[tokio::test]
async fn a_cut_or_refused_watch_goes_on_where_it_was() {
    let answers = vec![
        Answer::Lines(vec![bookmark("7", true), added("n1", "8")], Ending::Cut),
        refusal(500, "InternalError"),
        refusal(429, "TooManyRequests"),
        refusal(403, "Forbidden"),
        Answer::Whole(502, "<html>".to_owned()),
        Answer::Lines(vec![error(500, "InternalError")], Ending::InOrder),
        Answer::Lines(vec![added("n2", "9")], Ending::Open),
    ];
    let (heard, asked) = hear::<NodeObject>(answers, 4).await;
    assert_eq!(heard, ["begin 1", "end 1", "applied n1@8", "applied n2@9"]);
    assert_eq!(asked[0], STREAMING);
    assert!(asked[1..].iter().all(|uri| *uri == from("8")), "{asked:?}");
}

#[tokio::test]
async fn every_kind_is_watched_and_the_tasks_end_with_the_sink() {
    let service = tower::service_fn(|_: HttpRequest<Body>| async {
        let lines = futures::stream::iter([Ok::<_, std::io::Error>(bookmark("7", true) + "\n")]);
        let body = ResponseBody::from_stream(lines.chain(futures::stream::pending()));
        Ok::<_, std::convert::Infallible>(Response::new(body))
    });
    let client = Client::new(service, "default");
    let (sink, mut heard) = mpsc::channel(1);
    let clock: Clock = Arc::new(Now::default);
    let mut tasks = watch_all(&client, &sink, &clock);
    assert_eq!(tasks.len(), Kind::ALL.len());
    let mut ended = Vec::new();
    while ended.len() < Kind::ALL.len() {
        let event = timeout(Duration::from_secs(10), heard.recv()).await.expect("in time").expect("an event");
        if let EventKind::Watch(WatchEvent::End { kind, .. }) = event.kind {
            ended.push(kind);
        }
    }
    ended.sort();
    assert_eq!(ended, Kind::ALL);
    drop(heard);
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
}
