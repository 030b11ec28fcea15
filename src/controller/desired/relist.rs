//! Mark and sweep for one watched kind: which list is under way, and whether one was ever complete.
//!
//! Owns generations, not objects: the store stamps each record with [`Relist::mark`] and, at the end of a list, drops
//! what carries another stamp. There is no second store, and absence proves nothing before the end.

/// The lists of one kind.
#[derive(Debug, Default)]
pub(super) struct Relist {
    /// Generation of the last list that began.
    latest: Option<u64>,
    /// Whether that list is still under way.
    under_way: bool,
    /// How many lists began: what records are stamped with. Zero before the first.
    mark: u64,
    synced: bool,
}

impl Relist {
    /// A list begins; an unfinished earlier one is void. One that is not newer than the last is ignored.
    pub(super) fn begin(&mut self, generation: u64) {
        if self.latest.is_none_or(|latest| generation > latest) {
            self.latest = Some(generation);
            self.under_way = true;
            self.mark += 1;
        }
    }

    /// Whether an item of that generation belongs to the list under way.
    pub(super) fn accepts(&self, generation: u64) -> bool {
        self.under_way && self.latest == Some(generation)
    }

    /// The stamp of what is seen now. What a watch says while a list is under way is not older than the list.
    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    /// A list ends. Whether it is complete, so that what carries another stamp than the present is gone.
    pub(super) fn end(&mut self, generation: u64) -> bool {
        let complete = self.accepts(generation);
        if complete {
            self.under_way = false;
            self.synced = true;
        }
        complete
    }

    /// Whether a list was ever complete.
    pub(super) fn has_synced(&self) -> bool {
        self.synced
    }
}
