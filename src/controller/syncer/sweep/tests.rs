//! The rotas alone: order, pace, first reads, failures.

use super::*;

const PERIOD: Duration = Duration::from_secs(60);

fn at(millis: u64) -> Monotonic {
    Monotonic::new(Duration::from_millis(millis))
}

fn id(number: usize) -> AwsVolumeId {
    AwsVolumeId::parse(&format!("vol-{number:017x}")).unwrap()
}

fn on(node: usize) -> Option<Place> {
    Some(Place::On(NodeName::new(format!("n{node:05}"))))
}

/// A sweep over `count` volumes, 20 a node, all read before.
fn swept(count: usize) -> Sweep {
    let mut sweep = Sweep::new(PERIOD);
    for number in 0..count {
        sweep.place(&id(number), on(number / 20), false, at(0));
        sweep.was_read(&id(number));
    }
    sweep
}

/// Every batch that comes until `until`, each answered at once, with its time.
fn batches(sweep: &mut Sweep, until: Monotonic) -> Vec<(Monotonic, Vec<AwsVolumeId>)> {
    let mut batches = Vec::new();
    while let Some(due) = sweep.next_due(1.0).filter(|due| *due <= until) {
        let now = batches.last().map_or(due, |(last, _)| due.max(*last));
        let batch = sweep.next_batch(1.0, now).unwrap();
        for id in &batch.volumes {
            sweep.was_read(id);
        }
        sweep.succeeded(now);
        batches.push((now, batch.volumes));
    }
    batches
}

#[test]
fn a_period_reads_every_volume_once_in_full_batches_spread_evenly() {
    for (count, calls) in [(5_000, 25), (100_000, 500)] {
        let mut sweep = swept(count);
        let sent = batches(&mut sweep, at(60_000));
        assert_eq!(sent.len(), calls);
        let mut seen: Vec<_> = sent.iter().flat_map(|(_, volumes)| volumes.clone()).collect();
        seen.sort();
        assert_eq!(seen, (0..count).map(id).collect::<Vec<_>>());
        let interval = PERIOD / u32::try_from(calls).unwrap();
        assert!(sent.windows(2).all(|pair| pair[1].0.saturating_since(pair[0].0) >= interval));
    }
}

#[test]
fn the_volumes_of_a_node_are_read_together() {
    let mut sweep = Sweep::new(PERIOD);
    // By id they would be far apart.
    for number in 0..400 {
        sweep.place(&id(number), on(number % 20), false, at(0));
        sweep.was_read(&id(number));
    }
    let sent = batches(&mut sweep, at(60_000));
    for node in 0..20 {
        let holds = |volumes: &[AwsVolumeId]| (0..20).any(|step| volumes.contains(&id(node + step * 20)));
        assert!(sent.iter().filter(|(_, volumes)| holds(volumes)).count() <= 2);
    }
    assert_eq!(sent.len(), 2);
}

#[test]
fn volumes_without_an_attachment_are_read_ten_times_less_often() {
    let mut sweep = swept(200);
    sweep.place(&id(999), Some(Place::Loose), false, at(0));
    let sent = batches(&mut sweep, at(600_000));
    assert_eq!(sent.iter().filter(|(_, volumes)| volumes.contains(&id(999))).count(), 1);
    assert_eq!(sent.iter().filter(|(_, volumes)| volumes.contains(&id(0))).count(), 10);
}

#[test]
fn after_a_lease_was_got_every_volume_is_read_as_fast_as_the_budget_allows_and_then_no_burst_follows() {
    let mut sweep = swept(1_000);
    sweep.lease_got(at(5_000));
    let first = batches(&mut sweep, at(6_000));
    assert_eq!(first.len(), 5, "five full batches at once");
    assert_eq!(first.iter().map(|(_, volumes)| volumes.len()).sum::<usize>(), 1_000);
    let next = batches(&mut sweep, at(5_000 + 60_000));
    assert_eq!(next.len(), 5);
    assert!(next[0].0 >= at(5_000 + 12_000), "the rota begins an interval after the lease");
}

#[test]
fn what_somebody_asks_for_needs_no_first_read() {
    let mut sweep = Sweep::new(PERIOD);
    sweep.place(&id(1), on(1), true, at(0));
    sweep.place(&id(2), on(1), false, at(0));
    sweep.place(&id(3), on(1), false, at(0));
    sweep.wished(&id(2));
    let (when, volumes) = batches(&mut sweep, at(2_000)).remove(0);
    assert_eq!((when, volumes), (at(1_000), vec![id(3)]), "after a moment in which others may join it");
}

#[test]
fn a_volume_that_moves_stays_read_and_one_that_goes_is_forgotten() {
    let mut sweep = swept(1);
    sweep.place(&id(0), Some(Place::Loose), false, at(0));
    sweep.place(&id(0), on(7), false, at(0));
    assert!(sweep.unread.is_empty());
    sweep.place(&id(0), None, false, at(0));
    assert!(!sweep.has(&id(0)) && sweep.next_due(1.0).is_none());
}

#[test]
fn a_failed_batch_alone_comes_again_and_later_with_every_failure() {
    let mut sweep = swept(400);
    let batch = sweep.next_batch(1.0, at(30_000)).unwrap();
    let volumes = batch.volumes.clone();
    sweep.failed(batch, at(30_000), at(30_100), false);
    assert_eq!(sweep.next_due(1.0), Some(at(31_100)));
    let again = sweep.next_batch(1.0, at(31_100)).unwrap();
    assert_eq!(again.volumes, volumes);
    sweep.failed(again, at(31_100), at(31_200), false);
    assert_eq!(sweep.next_due(1.0), Some(at(33_200)));
}

#[test]
fn a_batch_that_keeps_failing_while_others_do_not_is_halved() {
    let mut sweep = swept(200);
    let mut sizes = Vec::new();
    for step in 0..40 {
        let now = at(60_000 + step * 5_000);
        let Some(batch) = sweep.next_batch(1.0, now) else { continue };
        sizes.push(batch.volumes.len());
        // One volume spoils every answer that it is in.
        if batch.volumes.contains(&id(77)) {
            sweep.failed(batch, now, now, false);
        } else {
            sweep.succeeded(now);
        }
        sweep.last_success = now;
    }
    assert_eq!(sizes[..3], [200, 200, 200]);
    assert!(sizes.iter().any(|size| *size <= 25), "{sizes:?}");
    assert!(!sizes[..3].contains(&100), "not before it failed thrice");
}

#[test]
fn an_outage_gathers_no_endless_list_of_batches() {
    let mut sweep = swept(100_000);
    let mut now = at(1_000);
    for _ in 0..1_000 {
        if let Some(batch) = sweep.next_batch(1.0, now) {
            sweep.failed(batch, now, now, false);
        }
        now = now + Duration::from_millis(120);
    }
    assert!(sweep.retries.len() <= RETRIES_MAX, "{}", sweep.retries.len());
}

#[test]
fn throttles_stretch_the_period_and_it_shows() {
    let mut sweep = swept(400);
    let mut now = at(0);
    for _ in 0..9 {
        now = sweep.next_due(0.5).unwrap();
        assert!(sweep.next_batch(0.5, now).is_some());
        sweep.succeeded(now);
    }
    assert_eq!(now, at(9 * 60_000));
    assert_eq!(sweep.last_round(), Some(PERIOD * 2));
}

#[test]
fn no_more_than_a_few_requests_are_under_way() {
    let mut sweep = swept(100_000);
    sweep.lease_got(at(0));
    let sent = std::iter::from_fn(|| sweep.next_batch(1.0, at(1_000))).count();
    assert_eq!((sent, sweep.next_due(1.0)), (UNDER_WAY_MAX, None));
    sweep.succeeded(at(2_000));
    assert!(sweep.next_batch(1.0, at(2_000)).is_some());
}
