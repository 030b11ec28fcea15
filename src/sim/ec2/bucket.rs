//! EC2's token bucket, as it is refilled on the other side: one call, one token, nothing is queued.

use crate::controller::policy::Bucket;
use crate::model::time::Monotonic;

/// A bucket with its level.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    bucket: Bucket,
    level: f64,
    filled: Monotonic,
}

impl TokenBucket {
    /// A full one.
    pub(super) fn full(bucket: Bucket) -> Self {
        Self { bucket, level: f64::from(bucket.burst), filled: Monotonic::ZERO }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Monotonic) -> bool {
        let gained = now.saturating_since(self.filled).as_secs_f64() * self.bucket.per_second;
        self.level = (self.level + gained).min(f64::from(self.bucket.burst));
        self.filled = self.filled.max(now);
        let enough = self.level >= 1.0;
        if enough {
            self.level -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_holds_its_burst_and_refills_at_its_rate() {
        let mut bucket = TokenBucket::full(Bucket { burst: 3, per_second: 5.0 });
        let at = |millis| Monotonic::new(Duration::from_millis(millis));
        assert_eq!((0..5).filter(|_| bucket.take(at(0))).count(), 3);
        assert!(!bucket.take(at(199)));
        assert!(bucket.take(at(200)));
        assert!(!bucket.take(at(201)));
        assert_eq!((0..9).filter(|_| bucket.take(at(60_000))).count(), 3, "never more than the burst");
    }
}
