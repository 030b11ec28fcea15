//! HTTP: EC2's API on every path, the control endpoint under `/sandbox/`.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use http::{StatusCode, Uri, header};
use smol_str::SmolStr;

use super::control::{self, Checks, Counts, Fault, FaultRequest, GuestHolds, Initializing, WireFaultKind};
use super::exchange::Exchange;
use super::query::Fields;
use super::xml::{self, Element};
use super::{Sandbox, instances, volumes};
use crate::sim::ec2::Ec2Error;

/// How long a request without an answer is kept open: longer than any client waits.
const NO_ANSWER: Duration = Duration::from_secs(120);

/// An action of the API.
type Action = fn(&mut Exchange<'_>) -> Result<Vec<Element>, Ec2Error>;

/// The actions the sandbox knows.
fn action(name: &str) -> Option<Action> {
    Some(match name {
        "AttachVolume" => volumes::attach,
        "DetachVolume" => volumes::detach,
        "DescribeVolumes" => volumes::describe,
        "DescribeVolumeStatus" => volumes::describe_status,
        "CreateVolume" => volumes::create,
        "DeleteVolume" => volumes::delete,
        "DescribeInstances" => instances::describe,
        "DescribeInstanceStatus" => instances::describe_status,
        "DescribeInstanceTypes" => instances::describe_types,
        "DescribeAvailabilityZones" => instances::describe_zones,
        "RunInstances" => instances::run,
        "TerminateInstances" => instances::terminate,
        "StopInstances" => instances::stop,
        "StartInstances" => instances::start,
        "RebootInstances" => instances::reboot,
        _ => return None,
    })
}

/// The routes.
pub(super) fn router(sandbox: Sandbox) -> Router {
    Router::new()
        .route("/sandbox/state", get(state))
        .route("/sandbox/ended", get(ended))
        .route("/sandbox/counts", get(counts))
        .route("/sandbox/faults", post(inject).delete(heal))
        .route("/sandbox/guest-holds", post(guest_holds))
        .route("/sandbox/checks", post(checks))
        .route("/sandbox/initializing", post(initializing))
        .fallback(any(ec2))
        .with_state(sandbox)
}

async fn ec2(State(sandbox): State<Sandbox>, uri: Uri, body: Bytes) -> Response {
    let fields = Fields::decode(uri.query().unwrap_or_default(), &String::from_utf8_lossy(&body));
    let name = fields.get("Action").unwrap_or_default().to_owned();
    let answer = carry_out(&sandbox, &name, &fields);
    let request_id = sandbox.next_request_id();
    let (status, text) = match answer {
        Ok(children) => (StatusCode::OK, xml::response(&name, &request_id, children)),
        Err(Ec2Error::Code { code, message }) => xml::error(&code, &message, &request_id),
        Err(Ec2Error::NoAnswer) => {
            sandbox.until_shutdown(NO_ANSWER).await;
            return StatusCode::GATEWAY_TIMEOUT.into_response();
        }
        Err(Ec2Error::Unreadable) => return html(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let as_xml = |status, text: String| (status, [(header::CONTENT_TYPE, "text/xml;charset=UTF-8")], text);
    match sandbox.take_wire_fault(&name) {
        None => as_xml(status, text).into_response(),
        Some(WireFaultKind::Html { status }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            html(status)
        }
        Some(WireFaultKind::Truncate { percent }) => {
            let end = text.len() * usize::from(percent) / 100;
            let end = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            as_xml(status, text[..end].to_owned()).into_response()
        }
        Some(WireFaultKind::Delay(delay)) => {
            sandbox.until_shutdown(delay).await;
            as_xml(status, text).into_response()
        }
    }
}

/// What a proxy says when it has no answer of EC2's.
fn html(status: StatusCode) -> Response {
    let page = format!("<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n");
    (status, [(header::CONTENT_TYPE, "text/html")], page).into_response()
}

fn carry_out(sandbox: &Sandbox, name: &str, fields: &Fields) -> Result<Vec<Element>, Ec2Error> {
    let Some(action) = action(name) else {
        return Err(Ec2Error::new("InvalidAction", format!("The action {name} is not valid for this web service.")));
    };
    let answer = if fields.is_true("DryRun") { Err(xml::dry_run()) } else { sandbox.with_exchange(fields, action) };
    let ended = match &answer {
        Ok(_) => SmolStr::new_static("OK"),
        Err(Ec2Error::Code { code, .. }) => code.clone(),
        Err(Ec2Error::NoAnswer) => SmolStr::new_static("NoAnswer"),
        Err(Ec2Error::Unreadable) => SmolStr::new_static("Unreadable"),
    };
    sandbox.count(name, ended);
    answer
}

async fn state(State(sandbox): State<Sandbox>) -> Response {
    Json(sandbox.with_model(|model, _| control::state(model))).into_response()
}

async fn ended(State(sandbox): State<Sandbox>) -> Response {
    Json(sandbox.with_model(|model, _| control::ended(model))).into_response()
}

async fn counts(State(sandbox): State<Sandbox>) -> Json<Counts> {
    Json(sandbox.counts())
}

async fn inject(State(sandbox): State<Sandbox>, Json(request): Json<FaultRequest>) -> Response {
    match request.into_fault() {
        Ok(Fault::Model(fault)) => sandbox.with_model(|model, _| model.inject(fault)),
        Ok(Fault::Wire(fault)) => sandbox.add_wire_fault(fault),
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
    StatusCode::NO_CONTENT.into_response()
}

async fn heal(State(sandbox): State<Sandbox>) -> StatusCode {
    sandbox.heal();
    StatusCode::NO_CONTENT
}

async fn guest_holds(State(sandbox): State<Sandbox>, Json(request): Json<GuestHolds>) -> Response {
    done(request.ids().map(|(instance, volume, holds)| {
        sandbox.with_model(|model, now| model.set_guest_holds(now, &instance, &volume, holds));
    }))
}

async fn checks(State(sandbox): State<Sandbox>, Json(request): Json<Checks>) -> Response {
    done(request.parse().map(|(instance, status)| {
        sandbox.with_model(|model, _| model.set_checks(&instance, status));
    }))
}

async fn initializing(State(sandbox): State<Sandbox>, Json(request): Json<Initializing>) -> Response {
    done(request.parse().map(|(volume, initializing)| {
        sandbox.with_model(|model, _| model.set_initializing(&volume, initializing));
    }))
}

/// Nothing to say, or what is wrong with the request.
fn done<E: std::fmt::Display>(result: Result<(), E>) -> Response {
    match result {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}
