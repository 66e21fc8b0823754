//! One history: the registry, the model beside it, and the trail that a sink would have kept.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::clock::{Now, Timestamp};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{ApprovalId, ProviderId};
use countersign_approval_core::json::Exact;
use countersign_approval_core::registry::{NewReview, Opening, Proposal, Registry, Settled, Verdict};
use countersign_approval_core::review::{ApprovalRequest, Decision, IdlePolicy, Outcome};
use countersign_approval_core::snapshot::Snapshot;

use super::Random;
use super::model::{Attempt, Change, Clocks, Fact, Model, Review};
use crate::registry_bench::{Run, START, approval_id, call, caller, granted, limits, run_id, subject};

const SUBJECTS: [&str; 3] = ["alice", "bob", "carol"];
const DAY: i64 = 86_400_000;

pub(super) struct World {
    registry: Registry<Run>,
    model: Model,
    now: Clocks,
    max_pending: usize,
    max_rejected: usize,
    /// What was begun and waits for the sink.
    held: Vec<Held>,
    /// What the sink accepted, in its order.
    trail: Vec<AuditRecord>,
    /// The questions, once they were shown.
    questions: BTreeMap<u128, std::sync::Arc<ApprovalRequest>>,
    aborted: BTreeMap<u128, Rc<Cell<bool>>>,
    /// How often the waiter of each review came back.
    told: BTreeMap<u128, u32>,
    /// Who approved what, exactly and with the grants: what an effect may rest on.
    approvals: Vec<(u128, &'static str)>,
    effects: BTreeMap<u128, u32>,
    next: u128,
}

enum Held {
    Opening(u128, Opening),
    Settling(u128, Box<Proposal>),
}

impl World {
    pub(super) fn new(random: &mut Random) -> Self {
        let max_pending = random.pick(&[1, 2, 5, 1_000]);
        let max_rejected = random.pick(&[0, 3, 600]);
        Self {
            registry: Registry::new(limits(max_pending, max_rejected as u32)),
            model: Model::default(),
            now: Clocks { wall: START, monotonic: 0 },
            max_pending,
            max_rejected,
            held: Vec::new(),
            trail: Vec::new(),
            questions: BTreeMap::new(),
            aborted: BTreeMap::new(),
            told: BTreeMap::new(),
            approvals: Vec::new(),
            effects: BTreeMap::new(),
            next: 1,
        }
    }

    pub(super) fn step(&mut self, random: &mut Random) {
        match random.below(16) {
            0..=2 => self.open(random),
            3..=6 => self.answer_sink(random),
            7..=10 => self.decide(random),
            11 => self.expire(),
            12 => self.cancel(random),
            13 => self.abort_run(random),
            14 => self.stray_abort(random),
            _ => self.pass_time(random),
        }
    }

    /// What holds between any two steps.
    pub(super) fn check(&self) {
        // I6 and capacity.
        assert_eq!(self.registry.pending(), self.model.pending());
        assert_eq!(self.registry.check_capacity().is_err(), self.model.pending() >= self.max_pending);
        let due = self.registry.next_due();
        let due =
            due.map(|due| Clocks { wall: due.wall.as_millis(), monotonic: due.monotonic.as_millis() as u64 });
        assert_eq!(due, self.model.next_due());
        // I1: at most one effect each.
        assert!(self.effects.values().all(|count| *count == 1));
        // I5 and law 5: a waiter is told once, and exactly when its review is over.
        for (n, review) in &self.model.reviews {
            assert_eq!(self.told.get(n).copied().unwrap_or(0), u32::from(review.over()), "review {n}");
        }
    }

    /// Lets everything come to its end; then nothing may be left.
    pub(super) fn end(mut self, random: &mut Random) {
        while !self.held.is_empty() {
            self.answer_sink(random);
            self.check();
        }
        for n in 0..self.next {
            if let Some(proposal) = self.registry.cancel(self.clocks(), approval_id(n)) {
                self.begin(n, Outcome::Cancelled, Box::new(proposal));
                self.answer_sink(random);
            }
        }
        self.check();
        assert_eq!((self.registry.pending(), self.registry.next_due()), (0, None));
        assert!(self.registry.expire_next(self.clocks()).is_none());
        // I7: every question that was recorded has one end, or a refused record.
        for (n, review) in &self.model.reviews {
            let ends = self.trail.iter().filter(|record| is_end_of(record, *n)).count();
            let shown = review.facts.contains(&Fact::Shown);
            let failed = review.facts.contains(&Fact::Failed);
            assert_eq!(ends, usize::from(shown && !failed), "review {n}: {:?}", review.facts);
        }
    }

    fn clocks(&self) -> Now {
        Now {
            wall: Timestamp::from_millis(self.now.wall),
            monotonic: Duration::from_millis(self.now.monotonic),
        }
    }

    fn open(&mut self, random: &mut Random) {
        let reuse = self.next > 1 && random.one_in(10);
        let n = if reuse { u128::from(random.below(self.next as u64)) } else { self.next };
        let (owner, lasts) =
            (random.pick(&SUBJECTS[..2]), random.pick(&[None, Some(0), Some(20), Some(60_000)]));
        let run = Run::number(n);
        let aborted = Rc::clone(&run.aborted);
        let new = NewReview {
            run_id: run_id(n + 1_000),
            subject: subject(owner),
            provider: ProviderId::parse("mock").unwrap(),
            call: Snapshot::freeze(call("call-1", "transfer", &arguments(n))).unwrap(),
            idle_policy: IdlePolicy::Pause,
            expires_after: lasts.map(Duration::from_millis),
        };
        let full = self.model.pending() >= self.max_pending;
        let taken = self.model.reviews.get(&n).is_some_and(|review| !review.over());
        match self.registry.open(self.clocks(), approval_id(n), new, run) {
            Err(error) => {
                assert!(full || taken, "there is room: {error}");
                assert_eq!(error.code(), "APPROVAL_CAPACITY");
            }
            Ok(opening) => {
                assert!(!full && !taken);
                if reuse {
                    // An id that is free again names another review: ids are never reused in earnest, so only see
                    // that it is taken back whole.
                    assert!(self.registry.open_failed(opening).is_some());
                    return;
                }
                let asked = self.now;
                self.model.reviews.insert(n, Review { owner, asked, lasts, facts: vec![Fact::Registered] });
                self.aborted.insert(n, aborted);
                self.held.push(Held::Opening(n, opening));
                self.next += 1;
            }
        }
    }

    /// The sink accepts or refuses one of the records that wait for it, in any order.
    fn answer_sink(&mut self, random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let accepts = !random.one_in(5);
        match self.held.swap_remove(random.below(self.held.len() as u64) as usize) {
            Held::Opening(n, opening) if accepts => {
                self.accept(opening.record());
                self.questions.insert(n, self.registry.opened(opening));
                self.model.happens(n, Fact::Shown);
            }
            Held::Opening(n, opening) => {
                let waiter = self.registry.open_failed(opening).unwrap();
                self.tell(n, &waiter);
                self.model.happens(n, Fact::Failed);
            }
            Held::Settling(n, proposal) if accepts => {
                let outcome = proposal.resolution().outcome;
                self.accept(proposal.record());
                let Settled { waiter, end, .. } = self.registry.commit(*proposal).unwrap();
                assert_eq!(end.unwrap().outcome, outcome);
                self.tell(n, &waiter);
                self.model.happens(n, Fact::Ended(outcome));
                if outcome == Outcome::Approved {
                    self.act(n);
                }
            }
            Held::Settling(n, proposal) => {
                let settled = self.registry.abort(proposal.id()).unwrap();
                // I4: nothing is authorized.
                assert!(settled.end.is_err());
                assert!(self.registry.commit(*proposal).is_none());
                self.tell(n, &settled.waiter);
                self.model.happens(n, Fact::Failed);
            }
        }
    }

    /// I3, I7, I10: a question is recorded once, its end once and later, and both show the same call.
    fn accept(&mut self, record: &AuditRecord) {
        match record {
            AuditRecord::Requested { approval, .. } => {
                assert!(!self.trail.iter().any(|r| matches!(r, AuditRecord::Requested { approval: a, .. } if a.approval_id == approval.approval_id)));
            }
            AuditRecord::Resolved { approval, resolution, .. } => {
                let id = approval.approval_id;
                assert_eq!(resolution.approval_id, id);
                assert!(
                    !self.trail.iter().any(
                        |r| matches!(r, AuditRecord::Resolved { approval: a, .. } if a.approval_id == id)
                    )
                );
                let shown = self.trail.iter().find_map(|r| match r {
                    AuditRecord::Requested { approval, .. } if approval.approval_id == id => Some(approval),
                    _ => None,
                });
                let text = |approval: &ApprovalRequest| approval.call.call().arguments.text().as_ptr();
                assert_eq!(text(shown.unwrap()), text(approval), "I2: one copy, recorded first");
            }
            other => panic!("{other:?}"),
        }
        self.trail.push(record.clone());
    }

    fn tell(&mut self, n: u128, waiter: &Run) {
        assert_eq!(waiter.number, n, "the waiter of that review");
        *self.told.entry(n).or_default() += 1;
    }

    /// I1, I2: what an effect needs, looked up in what was decided and recorded.
    fn act(&mut self, n: u128) {
        let owner = self.model.reviews[&n].owner;
        assert!(self.approvals.contains(&(n, owner)), "review {n} was not approved by its subject");
        assert_eq!(self.questions[&n].call.call().arguments.text(), arguments(n));
        *self.effects.entry(n).or_default() += 1;
    }

    fn decide(&mut self, random: &mut Random) {
        let n = u128::from(random.below(self.next as u64 + 1));
        let who = match self.model.reviews.get(&n) {
            Some(review) if !random.one_in(4) => review.owner,
            _ => random.pick(&SUBJECTS),
        };
        let change = if random.one_in(2) {
            Change::None
        } else {
            random.pick(&[Change::Run, Change::CallId, Change::Name, Change::Arguments])
        };
        let decision = random.pick(&[Decision::Approve, Decision::Approve, Decision::Deny, Decision::Cancel]);
        let honest = DecisionRequest {
            approval_id: approval_id(n).to_string(),
            run_id: run_id(n + 1_000).to_string(),
            call: countersign_approval_core::decision::EchoedCall {
                id: "call-1".into(),
                name: "transfer".into(),
                arguments: Exact::parse(&arguments(n)).unwrap(),
            },
            decision,
            reason: None,
        };
        let mut request = honest;
        let lacks_grants = random.one_in(6);
        let principal = match (lacks_grants, random.one_in(2)) {
            (false, _) => caller(who),
            (true, true) => granted(who, &["mock"], &["other"]),
            (true, false) => granted(who, &[], &["transfer"]),
        };
        match change {
            Change::None => {}
            Change::Run => request.run_id = run_id(n + 1_001).to_string(),
            Change::CallId => request.call.id = "call-2".into(),
            Change::Name => request.call.name = "transfer_".into(),
            Change::Arguments => request.call.arguments = Exact::parse(&arguments(n + 1)).unwrap(),
        }
        let outcome = match decision {
            Decision::Approve => Outcome::Approved,
            Decision::Deny => Outcome::Denied,
            Decision::Cancel => Outcome::Cancelled,
        };
        let attempt = Attempt { caller: who, review: n, lacks_grants, change, outcome };
        let expected = self.model.verdict(self.now, attempt, self.max_rejected);
        let (told, proposal) = match self.registry.decide(self.clocks(), &principal, &request) {
            Verdict::Refuse(refusal) => (Some(refusal), None),
            Verdict::Settle(mut proposal) => (proposal.take_refusal(), Some(proposal)),
        };
        let settles = proposal.as_ref().map(|proposal| proposal.resolution().outcome);
        let code = told.as_ref().map(|refusal| refusal.error.code());
        assert_eq!((code, settles), (expected.code, expected.settles), "{attempt:?}");
        if let Some(refusal) = told {
            assert_eq!(refusal.record.is_none(), code == Some("RATE_LIMITED"));
        }
        if let Some(proposal) = proposal {
            if code.is_none() && decision == Decision::Approve {
                self.approvals.push((n, who));
            }
            self.begin(n, expected.settles.unwrap(), proposal);
        }
    }

    fn begin(&mut self, n: u128, outcome: Outcome, proposal: Box<Proposal>) {
        assert!(self.model.reviews[&n].open(), "only an open review can come to an end");
        assert_eq!((proposal.id(), proposal.resolution().outcome), (approval_id(n), outcome));
        assert_eq!(proposal.resolution().decided_at.as_millis(), self.now.wall);
        self.model.happens(n, Fact::Ending(outcome));
        self.held.push(Held::Settling(n, proposal));
    }

    fn expire(&mut self) {
        match self.registry.expire_next(self.clocks()) {
            None => assert!(!self.model.any_late(self.now), "something is late"),
            Some(proposal) => {
                let n = number(proposal.id());
                assert!(self.model.reviews[&n].late(self.now), "review {n} still has time");
                self.begin(n, Outcome::Expired, Box::new(proposal));
            }
        }
    }

    fn cancel(&mut self, random: &mut Random) {
        let n = u128::from(random.below(self.next as u64 + 1));
        let open = self.model.reviews.get(&n).is_some_and(Review::open);
        let proposal = self.registry.cancel(self.clocks(), approval_id(n));
        assert_eq!(proposal.is_some(), open, "review {n}");
        if let Some(proposal) = proposal {
            self.begin(n, Outcome::Cancelled, Box::new(proposal));
        }
    }

    fn abort_run(&mut self, random: &mut Random) {
        let n = u128::from(random.below(self.next as u64));
        if let Some(aborted) = self.aborted.get(&n) {
            aborted.set(true);
            self.model.happens(n, Fact::RunAborted);
        }
    }

    /// An abort of what is not being settled changes nothing.
    fn stray_abort(&mut self, random: &mut Random) {
        let n = u128::from(random.below(self.next as u64 + 1));
        let settling = self.held.iter().any(|held| matches!(held, Held::Settling(m, _) if *m == n));
        if !settling {
            assert!(self.registry.abort(approval_id(n)).is_none());
        }
    }

    fn pass_time(&mut self, random: &mut Random) {
        let passed = random.pick(&[0, 1, 7, 19, 20, 59_999, 60_000, 3_600_000]);
        self.now.monotonic += passed;
        self.now.wall += passed as i64;
        match random.below(6) {
            0 => self.now.wall += random.pick(&[1, 20, DAY, 25 * DAY]),
            1 => self.now.wall -= random.pick(&[1, 20, DAY, 25 * DAY]),
            _ => {}
        }
    }
}

/// The arguments of review `n`: no two are alike.
fn arguments(n: u128) -> String {
    format!(r#"{{"to":"a","amount":{n}}}"#)
}

fn number(id: ApprovalId) -> u128 {
    uuid::Uuid::parse_str(&id.to_string()).unwrap().as_u128()
}

fn is_end_of(record: &AuditRecord, n: u128) -> bool {
    matches!(record, AuditRecord::Resolved { resolution, .. } if resolution.approval_id == approval_id(n))
}
