//! What is promised, and what is gone for.

use crate::measure::family;

/// A target: a bound on one figure.
pub(crate) struct Target {
    pub(crate) id: &'static str,
    /// What is measured.
    pub(crate) what: &'static str,
    /// The unit of the measurements.
    pub(crate) unit: &'static str,
    /// What the product is measured against.
    pub(crate) against: &'static str,
    /// How the value follows from the measurements.
    pub(crate) value: &'static str,
    pub(crate) goal: Goal,
    /// What is promised.
    pub(crate) commit: f64,
    /// What is gone for.
    pub(crate) stretch: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    AtMost,
    AtLeast,
}

impl Target {
    /// Whether the target belongs to `family`, such as `P6`.
    pub(crate) fn is_of(&self, id: &str) -> bool {
        family(self.id) == id
    }

    /// Whether `value` is good enough.
    pub(crate) fn is_met(&self, value: f64, bound: f64) -> bool {
        match self.goal {
            Goal::AtMost => value <= bound,
            Goal::AtLeast => value >= bound,
        }
    }
}

const fn at_most(commit: f64, stretch: f64) -> Target {
    Target {
        id: "",
        what: "",
        unit: "us",
        against: "",
        value: "x",
        goal: Goal::AtMost,
        commit,
        stretch: Some(stretch),
    }
}

/// Targets of the review path, in the order of the report.
pub(crate) const APPROVALS: &[Target] = &[
    Target {
        id: "P1",
        what: "decision to its 200",
        against: "echo of the same body by the bound on hyper",
        ..at_most(1.3, 1.15)
    },
    Target { id: "P2", what: "decision to `run.completed`", against: "the same echo", ..at_most(3.0, 2.2) },
    Target {
        id: "P3",
        what: "memory of a waiting run with its open stream, small call",
        unit: "B",
        against: "the bound on hyper",
        stretch: None,
        ..at_most(1.2, 0.0)
    },
    Target {
        id: "P3 lean",
        what: "the same, a later goal",
        unit: "B",
        against: "the bound on bare sockets",
        ..at_most(2.0, 1.5)
    },
    Target {
        id: "P3b",
        what: "memory of a waiting run, call of 100,000 bytes",
        unit: "B",
        against: "the bound on hyper",
        value: "x the bytes of the argument",
        ..at_most(2.0, 1.15)
    },
    Target {
        id: "P4",
        what: "decision to its 200 with 9,000 waiting",
        against: "the same with 10 waiting",
        ..at_most(1.3, 1.1)
    },
    Target {
        id: "All",
        what: "9,000 waiting at once: decided and completed",
        unit: "runs",
        against: "all that waited",
        value: " left over",
        stretch: None,
        ..at_most(0.0, 0.0)
    },
    Target {
        id: "P5",
        what: "decided in a burst over 16 connections",
        unit: "runs/s",
        against: "the bound on hyper",
        goal: Goal::AtLeast,
        ..at_most(0.5, 0.8)
    },
    Target {
        id: "P6 echoed",
        what: "decision of 127,000 bytes read and compared, text as it came",
        against: "serde_json's tree and `==`",
        ..at_most(0.25, 0.12)
    },
    Target {
        id: "P6 reordered",
        what: "the same with members in reverse order",
        against: "serde_json's tree and `==`",
        ..at_most(1.2, 0.5)
    },
    Target {
        id: "P6 pairs",
        what: "pairs of values that are easily confused",
        unit: "pairs",
        value: " told wrongly",
        stretch: None,
        ..at_most(0.0, 0.0)
    },
    Target {
        id: "P7 together",
        what: "durable audit records, 64 writers",
        unit: "records/s",
        against: "the least group commit",
        goal: Goal::AtLeast,
        ..at_most(0.7, 0.9)
    },
    Target {
        id: "P7 alone",
        what: "durable audit record, one writer",
        against: "one append and fdatasync",
        ..at_most(1.3, 1.0)
    },
    Target {
        id: "P8",
        what: "decision to its 200 with a durable audit",
        against: "audit in memory",
        value: "x after one append and fdatasync are taken off",
        ..at_most(1.3, 1.1)
    },
    Target {
        id: "P13",
        what: "connection and start of a run to `approval.requested`",
        against: "the bound on hyper",
        ..at_most(2.0, 1.5)
    },
    Target {
        id: "P14",
        what: "processor time while 9,000 wait",
        unit: "%",
        value: " % of one processor",
        ..at_most(1.0, 0.3)
    },
    Target {
        id: "P15 start",
        what: "`countersign serve` until it listens",
        unit: "ms",
        value: " ms",
        ..at_most(30.0, 10.0)
    },
    Target { id: "P15 size", what: "the stripped binary", unit: "MB", value: " MB", ..at_most(12.0, 6.0) },
    Target {
        id: "P15 memory",
        what: "resident memory of an idle host",
        unit: "MB",
        value: " MB",
        ..at_most(8.0, 5.0)
    },
];

/// Targets of the sandbox.
pub(crate) const SANDBOX: &[Target] = &[
    Target {
        id: "P9",
        what: "a run of a trivial program that was never seen before",
        against: "the raw engine: new, `1+1`, drop",
        ..at_most(1.6, 1.1)
    },
    Target {
        id: "P9 calls",
        what: "a run of a program with 16 calls",
        against: "quickjs-emscripten",
        value: "x faster",
        goal: Goal::AtLeast,
        stretch: None,
        ..at_most(4.0, 0.0)
    },
    Target {
        id: "P10",
        what: "one call of a function, objects in and out, of 1,000 in a program",
        against: "the raw engine with JSON text",
        value: " us",
        ..at_most(5.0, 2.5)
    },
    Target {
        id: "Hot",
        what: "memory of a run that waits for a person with its engine",
        unit: "B",
        against: "the raw engine, alive",
        value: " B",
        stretch: None,
        ..at_most(200_000.0, 0.0)
    },
    Target {
        id: "Evicted",
        what: "memory of a run that waits for a person without its engine",
        unit: "B",
        value: " B",
        stretch: None,
        ..at_most(4_000.0, 0.0)
    },
    Target {
        id: "Hostile",
        what: "the slowest program that tries to hang, in a worker",
        unit: "ms",
        against: "its budget",
        value: " ms over it",
        stretch: None,
        ..at_most(1_000.0, 0.0)
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_can_fail() {
        for target in APPROVALS.iter().chain(SANDBOX) {
            let (better, worse) = match target.goal {
                Goal::AtMost => (target.commit, target.commit + 0.001),
                Goal::AtLeast => (target.commit, target.commit - 0.001),
            };
            assert!(target.is_met(better, target.commit) && !target.is_met(worse, target.commit));
            assert!(
                target.stretch.is_none_or(|stretch| target.is_met(stretch, target.commit)),
                "{}",
                target.id
            );
        }
    }
}
