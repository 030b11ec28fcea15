//! DescribeVolumes, DescribeInstances, DescribeInstanceTypes: selection, paging, and reads that show the past.

use std::ops::Bound;
use std::time::Duration;

use smol_str::SmolStr;

use super::error::Ec2Error;
use super::fault::AnswerFault;
use super::history::History;
use super::options::Staleness;
use super::world::World;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType};
use crate::model::time::Monotonic;
use crate::model::volume::{
    AttachmentReading, AttachmentState, InstanceReading, InstanceState, InstanceStatusReading, InstanceTypeReading,
    VolumeReading, VolumeState, VolumeStatusReading,
};
use crate::sim::dice::Dice;

/// Most values one filter takes.
pub const FILTER_VALUES: usize = 200;
/// The largest page, and the page when none is asked for.
const LARGEST_PAGE: u32 = 1000;
/// The smallest page that may be asked for.
const SMALLEST_PAGE: u32 = 5;
/// Per million.
const HALF: u32 = 500_000;
const TOKEN_PREFIX: &str = "after-";

/// Which things a describe call is about.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a, Id> {
    /// All of them.
    All,
    /// Named as ids: one that is not known fails the whole request.
    Named(&'a [Id]),
    /// Named in a filter: one that is not known is left out. At most [`FILTER_VALUES`].
    Filtered(&'a [Id]),
}

/// One page of a describe call.
pub struct Query<'a, Id, Reading> {
    /// Which things.
    pub selection: Selection<'a, Id>,
    /// Further filters, as a predicate on what is shown.
    pub keep: Option<&'a dyn Fn(&Reading) -> bool>,
    /// 5 to 1000 (more is taken as 1000); not with [`Selection::Named`].
    pub max_results: Option<u32>,
    /// From the page before.
    pub next_token: Option<&'a str>,
}

impl<Id, Reading> Query<'_, Id, Reading> {
    /// Whether the call is counted as filtered or paged.
    pub(super) fn is_bounded(&self) -> bool {
        !matches!(self.selection, Selection::All) || self.keep.is_some() || self.max_results.is_some()
    }
}

/// A page, and the token of the next.
pub type Page<Reading> = (Vec<Reading>, Option<String>);

impl World {
    /// One page of DescribeVolumes.
    pub(super) fn describe_volumes(
        &mut self,
        query: &Query<'_, AwsVolumeId, VolumeReading>,
    ) -> Result<Page<VolumeReading>, Ec2Error> {
        let (after, limit) = page_bounds(query, |text| AwsVolumeId::parse(text).ok())?;
        if self.faults.empty_page() {
            return Ok((Vec::new(), Some(token(&after.as_ref().map(AwsVolumeId::text).unwrap_or_default()))));
        }
        let ids = match &query.selection {
            Selection::All => following(&self.volumes, after.as_ref()),
            Selection::Named(named) => {
                if let Some(unknown) = named.iter().find(|id| !self.has_volume(id)) {
                    return Err(Ec2Error::volume_not_found(unknown));
                }
                sorted(named, after.as_ref())
            }
            Selection::Filtered(wanted) => sorted(wanted, after.as_ref()),
        };
        let (page, last) = fill_page(ids, limit, query.keep, |id| self.read_volume(id));
        self.answer(page, last.map(|id| token(&id.text())))
    }

    /// One page of DescribeInstances.
    pub(super) fn describe_instances(
        &mut self,
        query: &Query<'_, InstanceId, InstanceReading>,
    ) -> Result<Page<InstanceReading>, Ec2Error> {
        let (after, limit) = page_bounds(query, |text| InstanceId::parse(text).ok())?;
        if self.faults.empty_page() {
            return Ok((Vec::new(), Some(token(&after.as_ref().map(InstanceId::text).unwrap_or_default()))));
        }
        let ids = match &query.selection {
            Selection::All => following(&self.instances, after.as_ref()),
            Selection::Named(named) => {
                if let Some(unknown) = named.iter().find(|id| !self.has_instance(id)) {
                    return Err(Ec2Error::instance_not_found(unknown));
                }
                sorted(named, after.as_ref())
            }
            Selection::Filtered(wanted) => sorted(wanted, after.as_ref()),
        };
        let (page, last) = fill_page(ids, limit, query.keep, |id| self.read_instance(id));
        self.answer(page, last.map(|id| token(&id.text())))
    }

    /// DescribeInstanceTypes: every name that looks like a type is one.
    pub(super) fn describe_types(&self, types: &[InstanceType]) -> Result<Vec<InstanceTypeReading>, Ec2Error> {
        let unknown: Vec<&str> = types.iter().map(InstanceType::as_str).filter(|name| !name.contains('.')).collect();
        if !unknown.is_empty() {
            let text = format!("The following supplied instance types do not exist: [{}]", unknown.join(", "));
            return Err(Ec2Error::new("InvalidInstanceType", text));
        }
        let reading = |instance_type: &InstanceType| InstanceTypeReading {
            instance_type: instance_type.clone(),
            ebs_cards: self.options.limits(instance_type).cards,
        };
        Ok(types.iter().map(reading).collect())
    }

    /// DescribeInstanceStatus of ids: one that is unknown fails the call, one that is not running is left out.
    pub(super) fn describe_instance_status(
        &mut self,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatusReading>, Ec2Error> {
        if let Some(unknown) = ids.iter().find(|id| !self.has_instance(id)) {
            return Err(Ec2Error::instance_not_found(unknown));
        }
        let readings: Vec<InstanceReading> = ids.iter().filter_map(|id| self.read_instance(id)).collect();
        let running = readings.into_iter().filter(|reading| reading.state == InstanceState::Running);
        let checked = |reading: InstanceReading| {
            let instance = self.instances.get(&reading.id)?;
            Some(InstanceStatusReading {
                id: reading.id,
                state: reading.state,
                system: instance.system_check.clone(),
                instance: instance.instance_check.clone(),
            })
        };
        let page = running.filter_map(checked).collect();
        self.answer(page, None).map(|(page, _)| page)
    }

    /// DescribeVolumeStatus of ids, likewise.
    pub(super) fn describe_volume_status(&mut self, ids: &[AwsVolumeId]) -> Result<Vec<VolumeStatusReading>, Ec2Error> {
        if let Some(unknown) = ids.iter().find(|id| !self.has_volume(id)) {
            return Err(Ec2Error::volume_not_found(unknown));
        }
        let shown = ids.iter().filter(|id| !self.faults.hidden_volumes.contains(*id));
        let reading = |id: &AwsVolumeId| {
            let volume = self.volumes.get(id)?;
            Some(VolumeStatusReading { id: id.clone(), initializing: volume.initializing })
        };
        let page = shown.filter_map(reading).collect();
        self.answer(page, None).map(|(page, _)| page)
    }

    /// Whether a client that names it is told that it is there.
    pub(super) fn has_volume(&self, id: &AwsVolumeId) -> bool {
        self.volumes.contains_key(id) && !self.faults.other_region
    }

    /// Whether a client that names it is told that it is there.
    pub(super) fn has_instance(&self, id: &InstanceId) -> bool {
        self.instances.contains_key(id) && !self.faults.other_region
    }

    /// A page as it goes out, with what is wrong with it.
    fn answer<T>(&mut self, page: Vec<T>, next_token: Option<String>) -> Result<Page<T>, Ec2Error> {
        let mut page = self.in_some_order(page);
        match self.spoilt {
            Some(AnswerFault::LeavesOneOut) => drop(page.pop()),
            Some(AnswerFault::Half) => {
                page.truncate(page.len() / 2);
                return Ok((page, None));
            }
            Some(AnswerFault::Unreadable) | None => {}
        }
        Ok((page, next_token))
    }

    fn read_volume(&mut self, id: &AwsVolumeId) -> Option<VolumeReading> {
        if self.faults.hidden_volumes.contains(id) || !self.has_volume(id) {
            return None;
        }
        let staleness = self.faults.staleness.unwrap_or(self.options.staleness);
        let volume = self.volumes.get(id)?;
        let view = as_read(&volume.history, staleness, self.now.monotonic, &mut self.dice);
        let mut reading = VolumeReading {
            id: id.clone(),
            state: view.state.clone(),
            attachments: view.attachments.clone(),
            multi_attach_enabled: volume.multi_attach,
            zone: volume.zone.clone(),
            tags: volume.tags.clone(),
        };
        if let Some(text) = self.faults.volume_states.get(id) {
            reading.state = VolumeState::Unknown(text.clone());
        }
        if let Some(text) = self.faults.attachment_states.get(id) {
            reading.attachments.iter_mut().for_each(|a| a.state = AttachmentState::Unknown(text.clone()));
        }
        if self.faults.managed.contains(id) {
            if reading.state == VolumeState::Available {
                reading.state = VolumeState::InUse;
            }
            let state = AttachmentState::Attached;
            reading.attachments.push(AttachmentReading { instance: None, device: None, state, attach_time: None });
        }
        if self.faults.without_attachments.contains(id) {
            reading.state = VolumeState::InUse;
            reading.attachments.clear();
        }
        Some(reading)
    }

    fn read_instance(&mut self, id: &InstanceId) -> Option<InstanceReading> {
        let instance = self.instances.get(id)?;
        let partly = instance.visible_from > self.now.monotonic;
        let flickers = partly || self.faults.flickering_instances.contains(id);
        if self.faults.hidden_instances.contains(id) || !self.has_instance(id) || (flickers && self.dice.chance(HALF)) {
            return None;
        }
        let instance = self.instances.get(id)?;
        let staleness = self.faults.staleness.unwrap_or(self.options.staleness);
        let view = as_read(&instance.history, staleness, self.now.monotonic, &mut self.dice);
        Some(InstanceReading {
            id: id.clone(),
            state: view.state.clone(),
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            mappings: view.mappings.clone(),
        })
    }

    /// The order within an answer means nothing: sometimes it is the other way round.
    fn in_some_order<T>(&mut self, mut page: Vec<T>) -> Vec<T> {
        if page.len() > 1 && self.dice.chance(HALF) {
            page.reverse();
        }
        page
    }
}

/// Fills one page; the last id on it if there is more.
fn fill_page<Id, Reading>(
    ids: Vec<Id>,
    limit: usize,
    keep: Option<&dyn Fn(&Reading) -> bool>,
    mut read: impl FnMut(&Id) -> Option<Reading>,
) -> (Vec<Reading>, Option<Id>) {
    let mut page = Vec::new();
    let mut last = None;
    for id in ids {
        let Some(reading) = read(&id).filter(|reading| keep.is_none_or(|keep| keep(reading))) else { continue };
        if page.len() >= limit {
            return (page, last);
        }
        page.push(reading);
        last = Some(id);
    }
    (page, None)
}

/// The present state, or one of the past that the window still allows.
fn as_read<'a, T>(history: &'a History<T>, staleness: Staleness, now: Monotonic, dice: &mut Dice) -> &'a T {
    let window = u64::try_from(staleness.window.as_millis()).unwrap_or(u64::MAX);
    if staleness.percent == 0 || window == 0 || !history.changed_since(now.saturating_sub(staleness.window)) {
        return history.latest();
    }
    if !dice.chance(u32::from(staleness.percent) * 10_000) {
        return history.latest();
    }
    let lag = Duration::from_millis(1 + dice.below(window));
    history.at(now.saturating_sub(lag))
}

fn following<Id: Clone + Ord, T>(all: &std::collections::BTreeMap<Id, T>, after: Option<&Id>) -> Vec<Id> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    all.range::<Id, _>((from, Bound::Unbounded)).map(|(id, _)| id.clone()).collect()
}

fn sorted<Id: Clone + Ord>(ids: &[Id], after: Option<&Id>) -> Vec<Id> {
    let mut ids: Vec<Id> = ids.iter().filter(|id| after.is_none_or(|after| *id > after)).cloned().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn token(after: &str) -> String {
    format!("{TOKEN_PREFIX}{after}")
}

fn page_bounds<Id, Reading>(
    query: &Query<'_, Id, Reading>,
    parse: impl Fn(&str) -> Option<Id>,
) -> Result<(Option<Id>, usize), Ec2Error> {
    let refused = |code: &str, text: SmolStr| Err(Ec2Error::new(code, text));
    match &query.selection {
        Selection::Named(_) if query.max_results.is_some() => {
            return refused(
                "InvalidParameterCombination",
                "The parameter maxResults cannot be used with the parameter that names ids in the same request".into(),
            );
        }
        Selection::Filtered(values) if values.len() > FILTER_VALUES => {
            return refused("FilterLimitExceeded", format!("A filter takes at most {FILTER_VALUES} values.").into());
        }
        _ => {}
    }
    let limit = match query.max_results {
        Some(few) if few < SMALLEST_PAGE => {
            let text = format!("Value ({few}) for parameter maxResults is invalid. Expecting a value greater than 4.");
            return refused("InvalidParameterValue", text.into());
        }
        given => given.unwrap_or(LARGEST_PAGE).min(LARGEST_PAGE),
    };
    let after = match query.next_token.map(|token| token.strip_prefix(TOKEN_PREFIX)) {
        None | Some(Some("")) => None,
        Some(given) => match given.and_then(parse) {
            Some(id) => Some(id),
            None => return refused("InvalidPaginationToken", "The pagination token is not valid.".into()),
        },
    };
    Ok((after, usize::try_from(limit).unwrap_or(usize::MAX)))
}
