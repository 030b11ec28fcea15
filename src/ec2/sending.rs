//! What is known about one attempt: whether it reached the socket, and what its error means.
//!
//! An answer that was cut short is none. "Not sent" is claimed only where it is certain: the SDK says so, its last hook
//! before the socket never ran, or the connection was refused. Everything else that has no answer is uncertain.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_ec2::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::{BoxError, DisplayErrorContext, ProvideErrorMetadata, SdkError};
use smol_str::{SmolStr, ToSmolStr};
use tokio::time::Instant;

use crate::model::outcome::{CallResult, classify_ec2};

/// The last hook before the socket: refuses what comes too late, and remembers what went through.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    not_after: Option<Instant>,
    handed_over: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
#[error("too late to be sent")]
struct TooLate;

#[derive(Debug, thiserror::Error)]
#[error("the answer ends before its end")]
struct CutShort;

impl Sending {
    pub(super) fn new(not_after: Option<Instant>) -> Self {
        Self { not_after, handed_over: Arc::new(AtomicBool::new(false)) }
    }

    fn reached_socket(&self) -> bool {
        self.handed_over.load(Ordering::SeqCst)
    }

    /// What an attempt without a good answer means.
    pub(super) fn failure<E, R>(&self, error: &SdkError<E, R>) -> CallResult
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        if let SdkError::ServiceError(answer) = error {
            return match answer.err().code() {
                Some(code) => classify_ec2(code, answer.err().message().unwrap_or_default()),
                None => uncertain(error),
            };
        }
        let never_sent = matches!(error, SdkError::ConstructionFailure(_))
            || !self.reached_socket()
            || (matches!(error, SdkError::DispatchFailure(_)) && is_refused_connection(error));
        if never_sent { CallResult::NotSent } else { uncertain(error) }
    }
}

// The macro that would spare the SDK the other hooks lives in a crate we do not depend on.
impl Intercept for Sending {
    fn name(&self) -> &'static str {
        "attachd::ec2::Sending"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.not_after.is_some_and(|not_after| Instant::now() > not_after) {
            return Err(TooLate.into());
        }
        self.handed_over.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        let body = response.body().bytes().unwrap_or_default();
        if response.status().is_success() && !is_whole(body) { Err(CutShort.into()) } else { Ok(()) }
    }
}

/// Whether EC2's answer ends as it must, with the end of its root: `</DescribeVolumesResponse>`. The SDK takes the
/// beginning of an answer for the whole, and what is not on it would read as gone, free or initialized.
fn is_whole(body: &[u8]) -> bool {
    let body = body.trim_ascii_end();
    let last_tag = body.windows(2).rposition(|two| two == b"</").map(|at| &body[at..]);
    last_tag.is_some_and(|tag| tag.ends_with(b"Response>"))
}

/// Only connect(2) answers ECONNREFUSED; a reset may come after the request.
fn is_refused_connection(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

fn uncertain<E, R>(error: &SdkError<E, R>) -> CallResult
where
    E: Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    CallResult::Uncertain(shortened(&DisplayErrorContext(error).to_string()))
}

/// The SDK's error contexts quote whole answers; what people read needs their beginning.
fn shortened(text: &str) -> SmolStr {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => SmolStr::new(format!("{}…", &text[..end])),
        None => text.to_smolstr(),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::error::{ConnectorError, ErrorMetadata};
    use aws_sdk_ec2::operation::attach_volume::AttachVolumeError;

    use super::*;
    use crate::model::outcome::{Ec2Refusal, Refusal};

    type Failure = SdkError<AttachVolumeError, ()>;

    fn reached() -> Sending {
        Sending { not_after: None, handed_over: Arc::new(AtomicBool::new(true)) }
    }

    fn service(code: Option<&str>, message: &str) -> Failure {
        let mut metadata = ErrorMetadata::builder().message(message);
        if let Some(code) = code {
            metadata = metadata.code(code);
        }
        Failure::service_error(AttachVolumeError::generic(metadata.build()), ())
    }

    fn io_error(kind: io::ErrorKind) -> Failure {
        Failure::dispatch_failure(ConnectorError::io(io::Error::from(kind).into()))
    }

    #[test]
    fn an_answer_is_whole_if_its_root_ends() {
        let whole = "<DescribeVolumesResponse><volumeSet/></DescribeVolumesResponse>";
        assert!(is_whole(whole.as_bytes()) && is_whole(format!("{whole}\n").as_bytes()));
        let cut = (0..whole.len()).find(|end| is_whole(&whole.as_bytes()[..*end]));
        assert_eq!(cut, None, "whole when cut there");
        assert!(!is_whole(b"<html><body></body></html>"));
    }

    #[test]
    fn an_error_answer_means_what_its_code_means() {
        let refusals = [
            ("VolumeInUse", "vol-1 is already attached to an instance", Ec2Refusal::VolumeInUse),
            ("Client.IncorrectState", "available", Ec2Refusal::IncorrectState),
            ("InvalidParameterValue", "Attachment point /dev/xvdba is already in use", Ec2Refusal::DeviceInUse),
            ("InvalidParameterValue", "/dev/nope is not valid", Ec2Refusal::NotPossible),
            ("AttachmentLimitExceeded", "full", Ec2Refusal::AttachmentLimit),
            ("InvalidAttachment.NotFound", "no", Ec2Refusal::AttachmentNotFound),
            ("UnauthorizedOperation", "no", Ec2Refusal::Unauthorized),
        ];
        for (code, message, expected) in refusals {
            match reached().failure(&service(Some(code), message)) {
                CallResult::Refused(Refusal::Ec2 { meaning, message: kept, .. }) => {
                    assert_eq!((meaning, kept.as_str()), (expected, message), "{code}");
                }
                other => panic!("{code}: {other:?}"),
            }
        }
        assert_eq!(reached().failure(&service(Some("RequestLimitExceeded"), "")), CallResult::Throttled);
        for unknown in [service(Some("InternalError"), "oops"), service(Some("NewCode"), ""), service(None, "")] {
            assert!(matches!(reached().failure(&unknown), CallResult::Uncertain(_)), "{unknown:?}");
        }
    }

    #[test]
    fn without_an_answer_only_what_surely_never_left_is_not_sent() {
        let before = Sending::new(None);
        assert_eq!(before.failure(&Failure::construction_failure("no")), CallResult::NotSent);
        assert_eq!(before.failure(&Failure::timeout_error("no credentials in time")), CallResult::NotSent);
        assert_eq!(before.failure(&io_error(io::ErrorKind::Other)), CallResult::NotSent);
        assert_eq!(reached().failure(&io_error(io::ErrorKind::ConnectionRefused)), CallResult::NotSent);
        let uncertain = [
            io_error(io::ErrorKind::ConnectionReset),
            io_error(io::ErrorKind::UnexpectedEof),
            Failure::timeout_error("10 s"),
            Failure::response_error("not XML", ()),
            Failure::dispatch_failure(ConnectorError::timeout("connect".into())),
        ];
        for error in uncertain {
            assert!(matches!(reached().failure(&error), CallResult::Uncertain(_)), "{error:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(500)).chars().count(), 301);
    }
}
