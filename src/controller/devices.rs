//! Which device name, and which EBS card, the next volume of an instance gets.
//!
//! Flow: an attach asks [`DeviceTable::reserve_next`] before AttachVolume is recorded and sent; polls say what EC2 shows.
//! Owns, per instance, what is known of its names: taken, reserved, bad, hung, blocked, and when they were last used.
//! Must never offer a name twice while EC2 has not shown who has it, nor one under which something may still be mounted.
//! The root's letter is not among [`device_names`], whatever the image calls its root.
//!
//! All of it is memory only. After a restart every name counts as never used, and what EC2 refuses as "already in use"
//! is learned again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use crate::model::device::{DeviceName, device_names};
use crate::model::ids::{AwsVolumeId, BootId, Uid};
use crate::model::node::Node;
use crate::model::time::Monotonic;
use crate::model::volume::BlockDeviceMapping;

/// How long a name that EC2 refused as "already in use" is tried last. The driver's constant.
const BAD_FOR: Duration = Duration::from_secs(3600);
/// Names one operation tries, at most, before it backs off.
pub const MAX_TRIES: usize = 10;

/// What an attach is sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Device.
    pub device: DeviceName,
    /// EbsCardIndex; `None` on instances with one card.
    pub card: Option<u32>,
}

/// No name is left to try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFreeDevice {
    /// Every name is taken, or must not be used.
    #[error(
        "no free device name on the instance: {taken} taken, {blocked} blocked by volumes that may still be mounted, \
         {hung} on which an attach hung"
    )]
    NoneLeft {
        /// Names that EC2 shows taken or that are reserved.
        taken: usize,
        /// Names of volumes that still count as in use there.
        blocked: usize,
        /// Names on which an attach hung.
        hung: usize,
    },
    /// This operation was refused [`MAX_TRIES`] names; another try comes later.
    #[error("EC2 refused {0} device names in a row as already in use")]
    TooManyTries(usize),
}

/// The device names of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceTable {
    /// As the last DescribeInstances showed them: a hint, for names and cards only.
    mappings: Vec<BlockDeviceMapping>,
    /// As DescribeVolumes shows them.
    attached: BTreeMap<AwsVolumeId, DeviceName>,
    /// Chosen or recorded, and not yet shown by EC2.
    reserved: BTreeMap<AwsVolumeId, DeviceName>,
    /// Cards chosen here: DescribeVolumes does not show them.
    cards: BTreeMap<AwsVolumeId, u32>,
    /// Names under which a volume may still be mounted.
    blocked: BTreeMap<AwsVolumeId, Blocked>,
    /// What is remembered of a slot.
    slots: BTreeMap<SmolStr, SlotMemory>,
    /// Counts uses, for their order.
    uses: u64,
}

/// Names under which a volume may still be mounted, and by which Node object that was said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    slots: BTreeSet<SmolStr>,
    /// The Node object: another one knows nothing of what was mounted before it.
    pub node_uid: Option<Uid>,
    /// The boot of the machine: after another one nothing is mounted any more.
    pub boot_id: Option<BootId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SlotMemory {
    /// Number of its last use; 0 means never.
    last_use: u64,
    /// When EC2 refused it as already in use.
    bad_since: Option<Monotonic>,
    hung: bool,
}

impl DeviceTable {
    /// An instance of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses a name (and, with more than one, a card) for the volume and reserves it until EC2 shows it or
    /// [`Self::release`]. `tried` are the names EC2 refused this operation already. `after` is the name recorded before: of
    /// names equally good the next one in the list's order is taken, so that processes that know nothing of one another
    /// go round the list and come to no name under which the volume may still be mounted.
    pub fn reserve_next(
        &mut self,
        volume: &AwsVolumeId,
        cards: u32,
        tried: &[DeviceName],
        after: Option<&DeviceName>,
        now: Monotonic,
    ) -> Result<DeviceChoice, NoFreeDevice> {
        if tried.len() >= MAX_TRIES {
            return Err(NoFreeDevice::TooManyTries(tried.len()));
        }
        self.release(volume);
        let device = self.choose(tried, after, now).ok_or_else(|| self.none_left())?;
        let card = choose_card(cards, &self.card_counts());
        self.reserve(volume, device.clone(), card);
        Ok(DeviceChoice { device, card })
    }

    /// Reserves the name recorded in a VolumeAttachment, chosen by an earlier process.
    pub fn reserve(&mut self, volume: &AwsVolumeId, device: DeviceName, card: Option<u32>) {
        if self.attached.get(volume).is_some_and(|seen| seen.slot() == device.slot()) {
            return;
        }
        self.note_use(&device);
        if let Some(card) = card {
            self.cards.insert(volume.clone(), card);
        }
        self.reserved.insert(volume.clone(), device);
    }

    /// The name reserved for a volume.
    pub fn reserved(&self, volume: &AwsVolumeId) -> Option<&DeviceName> {
        self.reserved.get(volume)
    }

    /// The reservation ends: the call was never sent, was refused, or is dead and had no effect.
    pub fn release(&mut self, volume: &AwsVolumeId) {
        if let Some(device) = self.reserved.remove(volume) {
            self.note_use(&device);
            if !self.attached.contains_key(volume) {
                self.cards.remove(volume);
            }
        }
    }

    /// EC2 refused the reserved name as already in use: it is tried last for an hour, and the reservation ends.
    pub fn refused_in_use(&mut self, volume: &AwsVolumeId, now: Monotonic) {
        if let Some(device) = self.reserved.get(volume).cloned() {
            self.slot_mut(&device).bad_since = Some(now);
            self.release(volume);
        }
    }

    /// An attach hung in `attaching` under this name: never again on this instance.
    pub fn hung(&mut self, device: &DeviceName) {
        self.slot_mut(device).hung = true;
    }

    /// Whether an attach hung under this name.
    pub fn is_hung(&self, device: &DeviceName) -> bool {
        self.slots.get(device.slot()).is_some_and(|memory| memory.hung)
    }

    /// EC2 shows the volume attached (or attaching, detaching) under this name. A name that works is good again.
    pub fn attachment_seen(&mut self, volume: &AwsVolumeId, device: &DeviceName) {
        if self.reserved.get(volume).is_some_and(|reserved| reserved.slot() == device.slot()) {
            self.reserved.remove(volume);
        }
        if self.attached.get(volume) != Some(device) {
            self.attached.insert(volume.clone(), device.clone());
            self.note_use(device);
            self.slot_mut(device).bad_since = None;
        }
    }

    /// EC2 confirms that the volume is not attached there. Its name becomes the most recently used one.
    pub fn attachment_gone(&mut self, volume: &AwsVolumeId) {
        if let Some(device) = self.attached.remove(volume) {
            self.note_use(&device);
        }
        self.mappings.retain(|mapping| mapping.volume.as_ref() != Some(volume));
        if !self.reserved.contains_key(volume) {
            self.cards.remove(volume);
        }
    }

    /// Takes over what DescribeInstances shows: everything on it is taken, ours or not. It ends no reservation: a read may
    /// be stale, and show the same volume under the same name from before.
    pub fn set_mappings(&mut self, mappings: &[BlockDeviceMapping]) {
        self.mappings = mappings.to_vec();
        for mapping in mappings {
            self.note_use(&mapping.device);
        }
    }

    /// The volumes that were on it when DescribeInstances was last asked.
    pub fn mapped(&self) -> impl Iterator<Item = &AwsVolumeId> {
        self.mappings.iter().filter_map(|mapping| mapping.volume.as_ref())
    }

    /// The volume still counts as in use under this name (reported, or marked): nobody gets the name, not even the
    /// volume itself. `node` is the Node object of the instance, if there is one.
    pub fn block(&mut self, volume: &AwsVolumeId, device: &DeviceName, node: Option<&Node>) {
        let blocked = self.blocked.entry(volume.clone()).or_default();
        blocked.slots.insert(SmolStr::new(device.slot()));
        if let Some(node) = node {
            blocked.node_uid = Some(node.uid.clone());
            blocked.boot_id = node.boot_id.clone();
        }
    }

    /// Whether the volume itself may not have the name again.
    pub fn is_blocked(&self, volume: &AwsVolumeId, device: &DeviceName) -> bool {
        self.blocked.get(volume).is_some_and(|blocked| blocked.slots.contains(device.slot()))
    }

    /// Volumes with names that are blocked.
    pub fn blocked(&self) -> impl Iterator<Item = (&AwsVolumeId, &Blocked)> {
        self.blocked.iter()
    }

    /// The volume does not count as in use there any more.
    pub fn unblock(&mut self, volume: &AwsVolumeId) {
        self.blocked.remove(volume);
    }

    /// The volumes that EC2 shows attached there or for which a name is reserved; some twice.
    pub fn volumes(&self) -> impl Iterator<Item = &AwsVolumeId> {
        self.attached.keys().chain(self.reserved.keys())
    }

    /// Attachments per EBS card: as mapped, and those chosen here that are not mapped yet.
    pub fn card_counts(&self) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for mapping in &self.mappings {
            *counts.entry(mapping.card.unwrap_or(0)).or_default() += 1;
        }
        let mapped: BTreeSet<&AwsVolumeId> = self.mappings.iter().filter_map(|m| m.volume.as_ref()).collect();
        for card in self.cards.iter().filter(|(volume, _)| !mapped.contains(volume)).map(|(_, card)| card) {
            *counts.entry(*card).or_default() += 1;
        }
        counts
    }

    fn choose(&self, tried: &[DeviceName], after: Option<&DeviceName>, now: Monotonic) -> Option<DeviceName> {
        let mut is_past = after.is_none();
        let mut shut: BTreeSet<&str> = self.taken().collect();
        shut.extend(self.blocked.values().flat_map(|blocked| &blocked.slots).map(SmolStr::as_str));
        shut.extend(tried.iter().map(DeviceName::slot));
        let unused = SlotMemory::default();
        device_names()
            .filter_map(|device| {
                let memory = self.slots.get(device.slot()).unwrap_or(&unused);
                let bad_since = memory.bad_since.filter(|since| now.saturating_since(*since) < BAD_FOR);
                // Good before bad, never used before used, then by the time of the last use; in the list's order else.
                let open = !memory.hung && !shut.contains(device.slot());
                let before = !is_past;
                is_past |= after.is_some_and(|after| after.slot() == device.slot());
                open.then_some(((bad_since, memory.last_use, before), device))
            })
            .min_by(|(one, _), (other, _)| one.cmp(other))
            .map(|(_, device)| device)
    }

    /// Slots that EC2 shows taken, or that are reserved.
    fn taken(&self) -> impl Iterator<Item = &str> {
        let mapped = self.mappings.iter().map(|mapping| &mapping.device);
        mapped.chain(self.attached.values()).chain(self.reserved.values()).map(DeviceName::slot)
    }

    fn none_left(&self) -> NoFreeDevice {
        NoFreeDevice::NoneLeft {
            taken: self.taken().collect::<BTreeSet<_>>().len(),
            blocked: self.blocked.values().flat_map(|blocked| &blocked.slots).collect::<BTreeSet<_>>().len(),
            hung: self.slots.values().filter(|memory| memory.hung).count(),
        }
    }

    fn note_use(&mut self, device: &DeviceName) {
        self.uses += 1;
        self.slot_mut(device).last_use = self.uses;
    }

    fn slot_mut(&mut self, device: &DeviceName) -> &mut SlotMemory {
        self.slots.entry(SmolStr::new(device.slot())).or_default()
    }
}

/// The EBS card for the next volume: the one with the fewest attachments, the lowest on a tie. `None` on instances with
/// one card, where the index must not be sent.
pub fn choose_card(cards: u32, per_card: &BTreeMap<u32, u32>) -> Option<u32> {
    if cards < 2 {
        return None;
    }
    (0..cards).min_by_key(|card| per_card.get(card).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(number: u32) -> AwsVolumeId {
        AwsVolumeId::parse(&format!("vol-{number:05x}")).unwrap()
    }

    fn mapping(device: &str, volume: Option<AwsVolumeId>) -> BlockDeviceMapping {
        BlockDeviceMapping { device: DeviceName::new(device), volume, card: None }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn next(table: &mut DeviceTable, number: u32) -> String {
        table.reserve_next(&volume(number), 1, &[], None, Monotonic::ZERO).unwrap().device.to_string()
    }

    /// A table on which every name but these is taken by others.
    fn all_taken_but(free: &[&str]) -> DeviceTable {
        let mut table = DeviceTable::new();
        let taken =
            device_names().filter(|device| free.iter().all(|free| DeviceName::new(*free).slot() != device.slot()));
        table.set_mappings(&taken.map(|device| mapping(device.as_str(), None)).collect::<Vec<_>>());
        table
    }

    fn offered(table: &DeviceTable) -> Vec<String> {
        let mut table = table.clone();
        let mut names = Vec::new();
        while let Ok(choice) = table.reserve_next(&volume(10_000 + names.len() as u32), 1, &[], None, Monotonic::ZERO) {
            names.push(choice.device.to_string());
            assert!(names.len() <= device_names().count(), "a name was offered twice");
        }
        names
    }

    #[test]
    fn a_process_that_knows_nothing_goes_on_from_the_recorded_name() {
        let mut names = Vec::new();
        let mut recorded: Option<DeviceName> = None;
        for _ in 0..3 {
            let next = DeviceTable::new().reserve_next(&volume(1), 1, &[], recorded.as_ref(), at(0)).unwrap().device;
            names.push(next.to_string());
            recorded = Some(next);
        }
        assert_eq!(names, ["/dev/xvdaa", "/dev/xvdab", "/dev/xvdac"]);
    }

    #[test]
    fn dev_05_sd_and_xvd_of_one_letter_are_one_slot() {
        let mut table = all_taken_but(&["/dev/xvdb", "/dev/xvdc"]);
        assert_eq!(offered(&table), ["/dev/xvdb", "/dev/xvdc"]);
        let mut mappings = table.mappings.clone();
        mappings.extend([mapping("/dev/sda1", Some(volume(1))), mapping("/dev/sdb", None)]);
        table.set_mappings(&mappings);
        assert_eq!(offered(&table), ["/dev/xvdc"]);
        mappings.push(mapping("sdc", None));
        table.set_mappings(&mappings);
        assert!(offered(&table).is_empty(), "a name without /dev/ counts");
    }

    #[test]
    fn dev_06_concurrent_attaches_get_different_names_while_reads_lag() {
        let mut table = DeviceTable::new();
        assert_eq!(next(&mut table, 1), "/dev/xvdaa");
        assert_eq!(next(&mut table, 2), "/dev/xvdab");
        // A lagging read shows neither: the reservations stand.
        table.set_mappings(&[mapping("/dev/sda1", None)]);
        assert_eq!(next(&mut table, 3), "/dev/xvdac");
        // Once EC2 shows the first, its name is taken without a reservation.
        table.attachment_seen(&volume(1), &DeviceName::new("/dev/xvdaa"));
        assert_eq!(table.reserved(&volume(1)), None);
        assert_eq!(next(&mut table, 4), "/dev/xvdad");
    }

    #[test]
    fn dev_06_after_a_restart_the_next_name_follows_a_refused_one() {
        let mut table = DeviceTable::new();
        let first = table.reserve_next(&volume(1), 1, &[], None, at(0)).unwrap().device;
        table.refused_in_use(&volume(1), at(0));
        let second = table.reserve_next(&volume(1), 1, std::slice::from_ref(&first), None, at(0)).unwrap().device;
        assert_eq!((first.as_str(), second.as_str()), ("/dev/xvdaa", "/dev/xvdab"));
        assert_eq!(table.reserved.len(), 1, "the refused name is not reserved");
    }

    #[test]
    fn dev_06_a_stale_mapping_of_the_same_volume_ends_no_reservation() {
        let mut table = all_taken_but(&["/dev/xvdaa", "/dev/xvdab"]);
        let fresh = table.mappings.clone();
        table.reserve(&volume(1), DeviceName::new("/dev/xvdaa"), None);
        table.set_mappings(&[fresh.clone(), vec![mapping("/dev/xvdaa", Some(volume(1)))]].concat());
        table.set_mappings(&fresh);
        assert_eq!(offered(&table), ["/dev/xvdab"]);
    }

    #[test]
    fn dev_06_a_recorded_name_is_reserved() {
        let mut table = DeviceTable::new();
        table.reserve(&volume(1), DeviceName::new("/dev/xvdaa"), None);
        assert_eq!(next(&mut table, 2), "/dev/xvdab");
        table.release(&volume(1));
        table.release(&volume(2));
        assert_eq!(next(&mut table, 3), "/dev/xvdac", "never-used names come first");
    }

    #[test]
    fn dev_07_a_name_taken_by_a_disk_that_is_not_ours_is_skipped() {
        let mut table = all_taken_but(&["/dev/xvdf", "/dev/xvdg"]);
        let mut mappings = table.mappings.clone();
        mappings.push(mapping("/dev/xvdf", None));
        table.set_mappings(&mappings);
        assert_eq!(offered(&table), ["/dev/xvdg"]);
    }

    #[test]
    fn dev_07_tries_are_bounded_and_the_end_says_why() {
        let mut table = DeviceTable::new();
        let mut tried = Vec::new();
        let error = loop {
            match table.reserve_next(&volume(1), 1, &tried, None, at(0)) {
                Ok(choice) => {
                    assert!(!tried.contains(&choice.device), "{choice:?} again");
                    table.refused_in_use(&volume(1), at(0));
                    tried.push(choice.device);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error, NoFreeDevice::TooManyTries(MAX_TRIES));
        assert!(table.reserved.is_empty());

        let mut full = all_taken_but(&["/dev/xvdb", "/dev/xvdc"]);
        full.hung(&DeviceName::new("/dev/xvdb"));
        full.block(&volume(2), &DeviceName::new("/dev/sdc"), None);
        let error = full.reserve_next(&volume(1), 1, &[], None, at(0)).unwrap_err();
        assert_eq!(error, NoFreeDevice::NoneLeft { taken: 99, blocked: 1, hung: 1 });
        assert!(error.to_string().contains("99 taken, 1 blocked"), "{error}");
    }

    #[test]
    fn dev_07_bad_names_are_tried_last_and_are_good_again_after_an_hour_or_when_one_works() {
        let mut table = all_taken_but(&["/dev/xvdf", "/dev/xvdg"]);
        table.reserve(&volume(1), DeviceName::new("/dev/xvdf"), None);
        table.refused_in_use(&volume(1), at(0));
        // It was used before xvdg, so only its being bad puts it last.
        table.reserve(&volume(1), DeviceName::new("/dev/xvdg"), None);
        table.release(&volume(1));
        let first =
            |table: &DeviceTable, now| table.clone().reserve_next(&volume(9), 1, &[], None, now).unwrap().device;
        assert_eq!(first(&table, at(3_599)).as_str(), "/dev/xvdg");
        assert_eq!(first(&table, at(3_600)).as_str(), "/dev/xvdf");
        assert_eq!(offered(&table), ["/dev/xvdg", "/dev/xvdf"], "tried at last");
        table.attachment_seen(&volume(3), &DeviceName::new("/dev/xvdf"));
        table.attachment_gone(&volume(3));
        table.reserve(&volume(1), DeviceName::new("/dev/xvdg"), None);
        table.release(&volume(1));
        assert_eq!(first(&table, at(10)).as_str(), "/dev/xvdf");
    }

    #[test]
    fn dev_09_the_root_letter_is_never_offered_and_single_letters_come_late() {
        let mut table = DeviceTable::new();
        table.set_mappings(&[mapping("/dev/sda1", Some(volume(1))), mapping("/dev/xvdb", Some(volume(2)))]);
        let names = offered(&table);
        assert_eq!(names.len(), 26 + 26 + 24 + 24);
        assert!(names[..76].iter().all(|name| name.len() == "/dev/xvdaa".len()), "{names:?}");
        assert!(names.iter().all(|name| DeviceName::new(name.as_str()).slot() != "a"));
    }

    #[test]
    fn stuck_01_names_rotate_least_recently_used_first() {
        let mut table = all_taken_but(&["/dev/xvdaa", "/dev/xvdab", "/dev/xvdac"]);
        for (number, device) in [(1, "/dev/xvdaa"), (2, "/dev/xvdab"), (3, "/dev/xvdac")] {
            assert_eq!(next(&mut table, number), device);
            table.attachment_seen(&volume(number), &DeviceName::new(device));
        }
        table.attachment_gone(&volume(2));
        table.attachment_gone(&volume(1));
        assert_eq!(next(&mut table, 4), "/dev/xvdab", "freed first");
        table.release(&volume(4));
        assert_eq!(next(&mut table, 5), "/dev/xvdaa");
    }

    #[test]
    fn stuck_01_the_freed_name_is_not_the_next_one() {
        let mut table = DeviceTable::new();
        for number in 0..19 {
            let device = next(&mut table, number);
            table.attachment_seen(&volume(number), &DeviceName::new(device));
        }
        table.attachment_gone(&volume(0));
        assert_eq!(next(&mut table, 20), "/dev/xvdat", "the twentieth name, never used yet");
    }

    #[test]
    fn stuck_01_a_name_on_which_an_attach_hung_is_never_offered_again() {
        let mut table = all_taken_but(&["/dev/xvdaa", "/dev/xvdb"]);
        assert_eq!(next(&mut table, 1), "/dev/xvdaa");
        table.hung(&DeviceName::new("/dev/xvdaa"));
        table.release(&volume(1));
        assert_eq!(offered(&table), ["/dev/xvdb"]);
        table.hung(&DeviceName::new("/dev/sdb"));
        assert!(offered(&table).is_empty());
    }

    #[test]
    fn unsafe_03_the_name_of_a_volume_that_counts_as_in_use_is_not_reused() {
        let mut table = all_taken_but(&["/dev/xvdaa", "/dev/xvdab"]);
        assert_eq!(next(&mut table, 1), "/dev/xvdaa");
        table.attachment_seen(&volume(1), &DeviceName::new("/dev/xvdaa"));
        table.block(&volume(1), &DeviceName::new("/dev/xvdaa"), None);
        table.attachment_gone(&volume(1));
        assert_eq!(offered(&table), ["/dev/xvdab"]);
        // Not even for the volume itself: it comes back under another name.
        assert_eq!(next(&mut table, 1), "/dev/xvdab");
        table.release(&volume(1));
        table.unblock(&volume(1));
        assert_eq!(offered(&table), ["/dev/xvdaa", "/dev/xvdab"]);
    }

    #[test]
    fn i_20_every_form_of_a_mapping_is_taken() {
        let mut table = DeviceTable::new();
        let mappings = ["/dev/sda1", "/dev/xvdb", "/dev/sdc", "/dev/xvda", "xvdd", "sde", "xvdaa"];
        table.set_mappings(&mappings.map(|device| mapping(device, None)));
        let names = offered(&table);
        assert_eq!(names[0], "/dev/xvdab");
        for slot in ["a", "b", "c", "d", "e", "aa"] {
            assert!(names.iter().all(|name| DeviceName::new(name.as_str()).slot() != slot), "{slot}");
        }
    }

    #[test]
    fn a_volume_seen_at_another_name_than_reserved_takes_both() {
        let mut table = all_taken_but(&["/dev/xvdaa", "/dev/xvdab", "/dev/xvdac"]);
        assert_eq!(next(&mut table, 1), "/dev/xvdaa");
        table.attachment_seen(&volume(1), &DeviceName::new("/dev/xvdab"));
        assert_eq!(table.reserved(&volume(1)).map(DeviceName::as_str), Some("/dev/xvdaa"));
        assert_eq!(offered(&table), ["/dev/xvdac"]);
    }

    #[test]
    fn cards_are_spread_evenly_lowest_first_and_not_named_where_there_is_one() {
        let count = |counts: &[(u32, u32)]| counts.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(choose_card(1, &count(&[(0, 9)])), None);
        assert_eq!(choose_card(0, &count(&[])), None);
        assert_eq!(choose_card(2, &count(&[])), Some(0));
        assert_eq!(choose_card(2, &count(&[(0, 1)])), Some(1));
        assert_eq!(choose_card(2, &count(&[(0, 3), (1, 3)])), Some(0));
    }

    #[test]
    fn a_card_counts_a_volume_once_however_it_is_known() {
        let mut table = DeviceTable::new();
        let card =
            |table: &mut DeviceTable, number| table.reserve_next(&volume(number), 2, &[], None, at(0)).unwrap().card;
        let root = BlockDeviceMapping { device: DeviceName::new("/dev/sda1"), volume: Some(volume(99)), card: None };
        table.set_mappings(std::slice::from_ref(&root));
        assert_eq!(card(&mut table, 1), Some(1), "the root is on card 0");
        assert_eq!(card(&mut table, 2), Some(0));
        // EC2 shows the first, by DescribeVolumes (without a card), then by DescribeInstances.
        table.attachment_seen(&volume(1), &DeviceName::new("/dev/xvdaa"));
        assert_eq!(table.card_counts(), BTreeMap::from([(0, 2), (1, 1)]));
        let shown =
            BlockDeviceMapping { device: DeviceName::new("/dev/xvdaa"), volume: Some(volume(1)), card: Some(1) };
        table.set_mappings(&[root, shown]);
        assert_eq!(table.card_counts(), BTreeMap::from([(0, 2), (1, 1)]));
        table.attachment_gone(&volume(1));
        table.release(&volume(2));
        assert_eq!(table.card_counts(), BTreeMap::from([(0, 1)]));
    }
}
