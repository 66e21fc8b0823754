//! What each decision was answered (contract 4.4; I3, I4, I5, I9; law 4).

use std::collections::{BTreeMap, BTreeSet};

use countersign_approval_core::audit::AuditRecord;

use super::position;
use crate::histories::journal::{Attempt, Fact, Kind, Played, Said, Sink};

pub(super) fn check(played: &Played) {
    let closing = position(played, |fact| matches!(fact, Fact::Closing));
    // When each review was settled, whether or not the sink accepted it.
    let mut settled: BTreeMap<String, (usize, Sink)> = BTreeMap::new();
    let mut attempts: BTreeMap<usize, (usize, &Attempt)> = BTreeMap::new();
    let mut receipts: BTreeSet<String> = BTreeSet::new();
    let mut not_found: BTreeSet<&str> = BTreeSet::new();
    for (at, fact) in played.facts.iter().enumerate() {
        match fact {
            Fact::Audit { record: AuditRecord::Resolved { resolution, .. }, sink } => {
                settled.insert(resolution.approval_id.to_string(), (at, *sink));
            }
            Fact::Attempt { number, attempt } => {
                attempts.insert(*number, (at, attempt));
            }
            Fact::Answer { number, said } => {
                let (sent, attempt) = attempts[number];
                let id = &attempt.decision.approval_id;
                match said {
                    Said::Receipt(receipt) => {
                        assert_eq!(attempt.kind, Kind::Honest, "law 1: {:?} was accepted", attempt.kind);
                        assert_eq!(receipt.outcome, attempt.decision.decision.outcome());
                        assert!(receipts.insert(id.clone()), "I5: {id} was decided twice");
                        let (recorded, sink) = settled[id];
                        assert_eq!(sink, Sink::Accepted, "I4");
                        assert!(sent < recorded && recorded < at, "I3: the receipt came before the record");
                    }
                    Said::Refused(code, message) => {
                        let late = settled.get(id).is_some_and(|(recorded, _)| *recorded < sent);
                        let is_closing = closing.is_some_and(|closing| closing < at);
                        check_refusal(played, attempt, code, late, is_closing);
                        if code == "APPROVAL_NOT_FOUND" {
                            not_found.insert(message);
                        }
                    }
                    Said::Broken => {
                        assert!(closing.is_some_and(|closing| closing < at), "a decision's connection broke");
                    }
                    Said::HungUp => {}
                }
            }
            _ => {}
        }
    }
    assert!(not_found.len() <= 1, "I5: not the same answer: {not_found:?}");
    assert_trail_names_the_caller(played, &attempts);
}

fn check_refusal(played: &Played, attempt: &Attempt, code: &str, late: bool, is_closing: bool) {
    // I9: never BUSY, however full the host is.
    let expected = match code {
        "APPROVAL_NOT_FOUND" => true,
        "APPROVAL_AUDIT_FAILED" => played.sink_fails,
        "HOST_SHUTTING_DOWN" => is_closing,
        "RATE_LIMITED" => played.rate_limited,
        // I5: what was settled before the decision was sent is not there for anybody.
        "FORBIDDEN" => attempt.kind == Kind::Ungranted && !late,
        "APPROVAL_MISMATCH" => attempt.kind == Kind::Altered && !late,
        _ => false,
    };
    assert!(expected, "{:?} was answered {code}, late: {late}", attempt.kind);
}

/// Law 4: a refusal is recorded under the subject of the token, and under nobody else's.
fn assert_trail_names_the_caller(played: &Played, attempts: &BTreeMap<usize, (usize, &Attempt)>) {
    for (at, fact) in played.facts.iter().enumerate() {
        let Fact::Audit { record: AuditRecord::Rejected { subject, approval_id, code, .. }, .. } = fact
        else {
            continue;
        };
        let named = attempts.values().any(|(sent, attempt)| {
            *sent < at
                && attempt.subject == subject.as_str()
                && approval_id.as_deref() == Some(&attempt.decision.approval_id)
        });
        assert!(named, "{code} is recorded of {subject}, who sent no such decision");
    }
}
