//! One request being answered.

use super::query::Fields;
use crate::model::time::Now;
use crate::sim::ec2::Ec2Model;

/// What an action works with.
pub(super) struct Exchange<'a> {
    pub(super) model: &'a mut Ec2Model,
    pub(super) now: Now,
    pub(super) region: &'a str,
    pub(super) fields: &'a Fields,
}
