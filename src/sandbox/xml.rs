//! The EC2 Query protocol's answers: a small tree of elements, and the envelopes around it.

use http::StatusCode;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use crate::sim::ec2::Ec2Error;

const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

/// An element with a text or with children; EC2 uses no attributes inside its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Element {
    name: &'static str,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Children(Vec<Element>),
}

/// `<name>text</name>`
pub(super) fn text(name: &'static str, value: impl ToString) -> Element {
    Element { name, content: Content::Text(value.to_string()) }
}

/// `<name>…</name>`
pub(super) fn parent(name: &'static str, children: Vec<Element>) -> Element {
    Element { name, content: Content::Children(children) }
}

/// `<name><item>…</item>…</name>`
pub(super) fn items(name: &'static str, items: impl IntoIterator<Item = Vec<Element>>) -> Element {
    parent(name, items.into_iter().map(|children| parent("item", children)).collect())
}

/// A good answer's body.
pub(super) fn response(action: &str, request_id: &str, children: Vec<Element>) -> String {
    let root = format!("{action}Response");
    let mut all = vec![text("requestId", request_id)];
    all.extend(children);
    render(BytesStart::new(root.as_str()).with_attributes([("xmlns", NAMESPACE)]), &all)
}

/// An error answer: status and body.
pub(super) fn error(code: &str, message: &str, request_id: &str) -> (StatusCode, String) {
    let error = parent("Error", vec![text("Code", code), text("Message", message)]);
    let children = [parent("Errors", vec![error]), text("RequestID", request_id)];
    (status_of(code), render(BytesStart::new("Response"), &children))
}

/// The HTTP status EC2 gives a code. Clients go by the code.
fn status_of(code: &str) -> StatusCode {
    match code {
        "RequestLimitExceeded" | "EC2ThrottledException" | "Unavailable" | "ServiceUnavailable" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        "InternalError" | "InternalFailure" | "ServerInternal" => StatusCode::INTERNAL_SERVER_ERROR,
        "UnauthorizedOperation" => StatusCode::FORBIDDEN,
        "AuthFailure" => StatusCode::UNAUTHORIZED,
        "DryRunOperation" => StatusCode::PRECONDITION_FAILED,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// What a probe with `DryRun` gets when the call would have been permitted.
pub(super) fn dry_run() -> Ec2Error {
    Ec2Error::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

fn render(root: BytesStart<'_>, children: &[Element]) -> String {
    let mut writer = Writer::new(Vec::new());
    // Writing into memory does not fail.
    let written = (|| {
        writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let end = root.to_end().into_owned();
        writer.write_event(Event::Start(root))?;
        children.iter().try_for_each(|child| write(&mut writer, child))?;
        writer.write_event(Event::End(end))
    })();
    match written {
        Ok(()) => String::from_utf8_lossy(writer.get_ref()).into_owned(),
        Err(error) => format!("<!-- {error} -->"),
    }
}

fn write(writer: &mut Writer<Vec<u8>>, element: &Element) -> std::io::Result<()> {
    writer.write_event(Event::Start(BytesStart::new(element.name)))?;
    match &element.content {
        Content::Text(text) => writer.write_event(Event::Text(BytesText::new(text)))?,
        Content::Children(children) => children.iter().try_for_each(|child| write(writer, child))?,
    }
    writer.write_event(Event::End(BytesEnd::new(element.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_ec2s_envelopes_and_escape_what_they_quote() {
        let set = items("volumeSet", [vec![text("volumeId", "vol-1")], vec![text("volumeId", "<&>")]]);
        assert_eq!(
            response("DescribeVolumes", "r1", vec![set]),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <DescribeVolumesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r1</requestId>\
             <volumeSet><item><volumeId>vol-1</volumeId></item><item><volumeId>&lt;&amp;&gt;</volumeId></item>\
             </volumeSet></DescribeVolumesResponse>"
        );
        let (status, body) = error("RequestLimitExceeded", "Request limit exceeded.", "r2");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            body,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Errors><Error><Code>RequestLimitExceeded</Code>\
             <Message>Request limit exceeded.</Message></Error></Errors><RequestID>r2</RequestID></Response>"
        );
    }
}
