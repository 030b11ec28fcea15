//! Watches: everything the API server has of seven kinds, as Begin, Item…, End and then change by change.
//!
//! Flow: [`watch_all`] runs one task per kind; what they hear goes as events into the sink, and a full sink slows them
//! down. Owns lists, resumption and gaps. Must never send End for a list of which anything was missed (absence would be
//! proved by it), and must never go on after a change that was not read (a list then fills the gap).
//!
//! This is not `kube::runtime::watcher`, for four reasons that matter here: its streaming list starts at
//! `resourceVersion=0`, which may be older than what an earlier leader acted on (this one is consistent); it does not
//! fall back where streaming lists are refused; a 410 to the start of a watch makes it repeat that start for ever; and a
//! change it cannot decode is lost without a trace.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent as Line, WatchParams};
use kube::client::Body;
use kube::core::Request;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use smol_str::SmolStr;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Clock;
use super::lenient::Field;
use super::objects::{
    AttachmentObject, ClaimObject, CsiDriverObject, CsiNodeObject, NodeObject, ObjectList, PersistentVolumeObject,
    PodObject,
};
use super::translate::Watched;
use crate::controller::event::{Event, EventKind, Object, WatchEvent};

/// How long the server may hold a watch open. It sends a first bookmark after two minutes, then one a minute.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);
/// A watch that has missed its bookmarks is a dead connection: it is resumed, which costs one request if it was not.
const WATCH_IDLE: Duration = Duration::from_secs(150);
/// A list that does not start, or a page or an object of it that does not come, is given up. A consistent list may have
/// to wait for the server's cache first.
const LIST_IDLE: Duration = Duration::from_secs(60);
/// client-go's page size.
const PAGE: u32 = 500;
/// A watch that ends sooner is not resumed at once: a server that accepts and closes would be asked without end.
const SHORT_WATCH: Duration = Duration::from_secs(5);

/// Watches every kind on the current runtime, until the sink's receiver is dropped. No task ends before; one that does
/// has panicked.
pub fn watch_all(client: &Client, sink: &mpsc::Sender<Event>, clock: &Clock) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    watch::<PodObject>(&mut tasks, client, sink, clock);
    watch::<ClaimObject>(&mut tasks, client, sink, clock);
    watch::<PersistentVolumeObject>(&mut tasks, client, sink, clock);
    watch::<NodeObject>(&mut tasks, client, sink, clock);
    watch::<CsiNodeObject>(&mut tasks, client, sink, clock);
    watch::<CsiDriverObject>(&mut tasks, client, sink, clock);
    watch::<AttachmentObject>(&mut tasks, client, sink, clock);
    tasks
}

fn watch<K: Watched>(tasks: &mut JoinSet<()>, client: &Client, sink: &mpsc::Sender<Event>, clock: &Clock) {
    let sink = Sink { events: sink.clone(), clock: clock.clone() };
    let watch = Watch { client: client.clone(), sink, lists: ListStyle::Streaming, generation: 0 };
    tasks.spawn(watch.run::<K>(DefaultBackoff::default()));
}

/// Why a list or a watch ended.
#[derive(Debug)]
enum End {
    /// Nobody listens any more.
    SinkClosed,
    /// The server ended the watch in order, or the connection broke: it can be resumed from there.
    Resume(SmolStr, Result<(), Broken>),
    /// Something was missed: only a list can tell.
    Gap(Broken),
    /// The server does not do streaming lists.
    NoStreamingLists,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the API server refused it: {0}")]
    Refused(Box<kube::core::Status>),
    #[error("the request failed")]
    Failed(#[from] kube::Error),
    #[error("the request could not be built")]
    NotBuilt(#[from] kube::core::request::Error),
    #[error("nothing came for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the list broke off")]
    BrokeOff,
    #[error("the list tells of a deletion")]
    DeletedInList,
    #[error("the answer cannot be read: {0}")]
    Undecodable(#[from] serde_json::Error),
    #[error("there is an object whose identity cannot be read")]
    Unidentified,
    #[error("there is no resourceVersion in it")]
    NoResourceVersion,
}

impl From<mpsc::error::SendError<Event>> for End {
    fn from(_: mpsc::error::SendError<Event>) -> Self {
        Self::SinkClosed
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Gap(broken)
    }
}

/// How a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListStyle {
    /// As the first part of a watch, object by object: no page is ever held in memory, no token expires.
    Streaming,
    /// In pages.
    Paged,
}

struct Sink {
    events: mpsc::Sender<Event>,
    clock: Clock,
}

impl Sink {
    async fn send(&self, event: WatchEvent) -> Result<(), End> {
        let at = (self.clock)();
        Ok(self.events.send(Event { at, kind: EventKind::Watch(event) }).await?)
    }
}

struct Watch {
    client: Client,
    sink: Sink,
    lists: ListStyle,
    generation: u64,
}

impl Watch {
    async fn run<K: Watched>(mut self, mut backoff: impl Backoff) {
        let mut from: Option<SmolStr> = None;
        loop {
            let began = Instant::now();
            let end = match from.take() {
                None => self.list_and_watch::<K>().await,
                Some(version) => self.resume::<K>(version).await,
            };
            let broken = match end {
                End::SinkClosed => return,
                End::NoStreamingLists => {
                    tracing::info!(kind = ?K::KIND, "the API server has no streaming lists: listing in pages");
                    self.lists = ListStyle::Paged;
                    continue;
                }
                End::Resume(version, result) => {
                    from = Some(version);
                    result.err()
                }
                End::Gap(broken) => Some(broken),
            };
            if let Some(broken) = &broken {
                let error = broken as &dyn std::error::Error;
                tracing::warn!(kind = ?K::KIND, list = from.is_none(), error, "a watch broke");
            } else if began.elapsed() >= SHORT_WATCH {
                backoff.reset();
                continue;
            }
            sleep(backoff.next().unwrap_or(LIST_IDLE)).await;
        }
    }

    async fn list_and_watch<K: Watched>(&mut self) -> End {
        let result = match self.lists {
            ListStyle::Streaming => self.streaming_list::<K>().await,
            ListStyle::Paged => self.paged_list::<K>().await,
        };
        result.unwrap_or_else(|end| end)
    }

    /// A list and then the watch, in one request.
    async fn streaming_list<K: Watched>(&mut self) -> Result<End, End> {
        let params = WatchParams { send_initial_events: true, ..watch_params::<K>() };
        // The empty version makes the list consistent.
        let request = Request::new(K::PATH).watch(&params, "").map_err(Broken::from)?;
        let lines = self.client.request_events::<Field<K>>(request);
        let lines = match timeout(LIST_IDLE, lines).await {
            Ok(Ok(lines)) => lines,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 422) => {
                return Err(End::NoStreamingLists);
            }
            Ok(Err(error)) => return Err(failed(error).into()),
            Err(_) => return Err(Broken::Silent(LIST_IDLE).into()),
        };
        let mut lines = std::pin::pin!(lines);
        self.begin::<K>().await?;
        loop {
            match next(&mut lines, LIST_IDLE).await?.ok_or(Broken::BrokeOff)? {
                Line::Added(object) | Line::Modified(object) => self.item(object).await?,
                Line::Bookmark(mark) if mark.metadata.annotations.contains_key("k8s.io/initial-events-end") => {
                    self.end::<K>().await?;
                    return Ok(self.follow(lines, SmolStr::new(mark.metadata.resource_version)).await);
                }
                Line::Bookmark(_) => {}
                Line::Deleted(_) => return Err(Broken::DeletedInList.into()),
                Line::Error(status) => return Err(Broken::Refused(status).into()),
            }
        }
    }

    /// A list in pages; the watch is the next request.
    async fn paged_list<K: Watched>(&mut self) -> Result<End, End> {
        self.begin::<K>().await?;
        let mut continue_token = None;
        loop {
            let mut params = ListParams::default().limit(PAGE);
            params.field_selector = K::FIELD_SELECTOR.map(str::to_owned);
            params.continue_token = continue_token;
            let request = Request::new(K::PATH).list(&params).map_err(Broken::from)?;
            let page = timeout(LIST_IDLE, self.page::<K>(request)).await;
            let page = page.map_err(|_| Broken::Silent(LIST_IDLE))??;
            for object in page.items.all("items").map_err(|_| Broken::Unidentified)? {
                self.item(Field::Is(object)).await?;
            }
            let metadata = page.metadata.ok().ok_or(Broken::NoResourceVersion)?;
            match metadata.continue_token.ok().filter(|token| !token.is_empty()) {
                Some(token) => continue_token = Some(token.to_string()),
                None => {
                    let version = metadata.resource_version.ok().filter(|version| !version.is_empty());
                    let version = version.ok_or(Broken::NoResourceVersion)?;
                    self.end::<K>().await?;
                    return Ok(self.resume::<K>(version).await);
                }
            }
        }
    }

    /// Not by kube's typed request, which logs the whole page if it cannot decode it.
    async fn page<K: Watched>(&self, request: http::Request<Vec<u8>>) -> Result<ObjectList<K>, Broken> {
        let response = self.client.send(request.map(Body::from)).await?;
        let status = response.status();
        let body = response.into_body().collect_bytes().await?;
        if !status.is_success() {
            let said = serde_json::from_slice::<kube::core::Status>(&body).unwrap_or_default();
            return Err(Broken::Refused(Box::new(said.with_code(status.as_u16()))));
        }
        let list: ObjectList<K> = serde_json::from_slice(&body)?;
        // An answer that is no list at all would read as an empty one.
        if list.kind.get().is_some_and(|kind| kind.ends_with("List")) { Ok(list) } else { Err(Broken::BrokeOff) }
    }

    async fn resume<K: Watched>(&self, version: SmolStr) -> End {
        let request = match Request::new(K::PATH).watch(&watch_params::<K>(), &version) {
            Ok(request) => request,
            Err(error) => return End::Gap(error.into()),
        };
        match timeout(LIST_IDLE, self.client.request_events::<Field<K>>(request)).await {
            Ok(Ok(lines)) => {
                let lines = std::pin::pin!(lines);
                self.follow(lines, version).await
            }
            // The version is too old, or the server does not know it: no repetition will help.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 410 | 422) => {
                End::Gap(Broken::Refused(status))
            }
            Ok(Err(error)) => End::Resume(version, Err(failed(error))),
            Err(_) => End::Resume(version, Err(Broken::Silent(LIST_IDLE))),
        }
    }

    /// Change by change, from `version` on.
    async fn follow<K: Watched>(
        &self,
        mut lines: impl Stream<Item = kube::Result<Line<Field<K>>>> + Unpin,
        mut version: SmolStr,
    ) -> End {
        loop {
            let event = match timeout(WATCH_IDLE, lines.next()).await {
                Err(_) => return End::Resume(version, Err(Broken::Silent(WATCH_IDLE))),
                Ok(None) => return End::Resume(version, Ok(())),
                Ok(Some(Err(kube::Error::SerdeError(error)))) => return End::Gap(error.into()),
                Ok(Some(Err(error))) => return End::Resume(version, Err(failed(error))),
                Ok(Some(Ok(Line::Error(status)))) if status.code == 410 => return End::Gap(Broken::Refused(status)),
                Ok(Some(Ok(Line::Error(status)))) => return End::Resume(version, Err(Broken::Refused(status))),
                Ok(Some(Ok(Line::Bookmark(mark)))) => {
                    version = SmolStr::new(mark.metadata.resource_version);
                    continue;
                }
                Ok(Some(Ok(Line::Added(object) | Line::Modified(object)))) => change(object, applied),
                Ok(Some(Ok(Line::Deleted(object)))) => change(object, |object| object.key().map(WatchEvent::Deleted)),
            };
            match event {
                Ok((event, at)) => {
                    if let Err(end) = self.sink.send(event).await {
                        return end;
                    }
                    version = at;
                }
                Err(broken) => return End::Gap(broken),
            }
        }
    }

    async fn begin<K: Watched>(&mut self) -> Result<(), End> {
        self.generation += 1;
        self.sink.send(WatchEvent::Begin { kind: K::KIND, generation: self.generation }).await
    }

    async fn item<K: Watched>(&self, object: Field<K>) -> Result<(), End> {
        let object = object.ok().and_then(read).ok_or(Broken::Unidentified)?;
        self.sink.send(WatchEvent::Item { generation: self.generation, object }).await
    }

    async fn end<K: Watched>(&self) -> Result<(), End> {
        self.sink.send(WatchEvent::End { kind: K::KIND, generation: self.generation }).await
    }
}

fn watch_params<K: Watched>() -> WatchParams {
    WatchParams {
        field_selector: K::FIELD_SELECTOR.map(str::to_owned),
        timeout: u32::try_from(WATCH_TIMEOUT.as_secs()).ok(),
        ..WatchParams::default()
    }
}

fn failed(error: kube::Error) -> Broken {
    match error {
        kube::Error::Api(status) => Broken::Refused(status),
        error => Broken::Failed(error),
    }
}

async fn next<T>(
    lines: &mut (impl Stream<Item = kube::Result<T>> + Unpin),
    idle: Duration,
) -> Result<Option<T>, Broken> {
    match timeout(idle, lines.next()).await {
        Ok(line) => line.transpose().map_err(failed),
        Err(_) => Err(Broken::Silent(idle)),
    }
}

/// What a change says, and the version it brings the watch to.
fn change<K: Watched>(
    object: Field<K>,
    event: impl Fn(K) -> Option<WatchEvent>,
) -> Result<(WatchEvent, SmolStr), Broken> {
    let object = object.ok().ok_or(Broken::Unidentified)?;
    let version = object.resource_version().filter(|version| !version.is_empty());
    let version = version.ok_or(Broken::NoResourceVersion)?;
    Ok((event(object).ok_or(Broken::Unidentified)?, version))
}

fn applied<K: Watched>(object: K) -> Option<WatchEvent> {
    read(object).map(WatchEvent::Applied)
}

/// The model's object; `None` if it cannot even be said which one it is.
fn read<K: Watched>(object: K) -> Option<Object> {
    let key = object.key()?;
    Some(object.translate().unwrap_or_else(|unread| {
        tracing::warn!(object = ?key, %unread, "an object cannot be read; what was known of it stays");
        Object::Unreadable(key)
    }))
}

#[cfg(test)]
mod tests;
