//! The executions that applications were asked for: a deterministic state machine (contract 7.6).
//!
//! As the core's registry of approvals it reads no clock, takes no lock, makes no id and waits for nothing. It is simpler
//! than that one, because nothing is recorded before a report counts: a report finds its execution or does not, and the
//! one that says how it ended takes it away.
//!
//! ```text
//! reserve ──► Reserved ──hand_over──► Asked ──claim──► gone
//!                └──────── remove ───────┴────────────► gone
//! ```

use std::collections::HashMap;

use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{CallId, ExecutionId, ProviderId, RunId, Subject, ToolName};
use countersign_protocol::code::Code;
use countersign_protocol::tool_execution::ExecutionIdentity;

/// Whoever waits for the end of an execution: its run.
pub(super) trait Waiter {
    /// Whether the run has been aborted, so that nothing can be reported any more.
    fn is_aborted(&self) -> bool;
}

/// What a report is compared with.
#[derive(Debug)]
pub(super) struct Bound {
    /// The subject of the run.
    pub(super) subject: Subject,
    pub(super) provider: ProviderId,
    pub(super) run_id: RunId,
    pub(super) call_id: CallId,
    pub(super) tool: ToolName,
}

/// The registry. `W` is the waiter of each execution.
#[derive(Debug)]
pub(super) struct Registry<W> {
    max_pending: usize,
    entries: HashMap<ExecutionId, Entry<W>>,
}

#[derive(Debug)]
struct Entry<W> {
    bound: Bound,
    state: State,
    waiter: W,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It takes up capacity; nobody was told of it.
    Reserved,
    /// The application was asked.
    Asked,
}

/// Why a report is refused. A refused one changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Forbidden,
    Mismatch,
}

impl Refusal {
    pub(super) const fn code(self) -> Code {
        match self {
            Self::NotFound => Code::TOOL_EXECUTION_NOT_FOUND,
            Self::Forbidden => Code::FORBIDDEN,
            Self::Mismatch => Code::TOOL_EXECUTION_MISMATCH,
        }
    }
}

/// As many executions are open as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl<W: Waiter> Registry<W> {
    pub(super) fn new(max_pending: usize) -> Self {
        Self { max_pending, entries: HashMap::new() }
    }

    /// How many executions take up capacity.
    pub(super) fn pending(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is room for another one.
    pub(super) fn check_capacity(&self) -> Result<(), Full> {
        if self.entries.len() >= self.max_pending { Err(Full) } else { Ok(()) }
    }

    /// Takes up capacity. `id` must be new; one that is in use is refused as if there were no room.
    pub(super) fn reserve(&mut self, id: ExecutionId, bound: Bound, waiter: W) -> Result<(), Full> {
        self.check_capacity()?;
        if self.entries.contains_key(&id) {
            return Err(Full);
        }
        self.entries.insert(id, Entry { bound, state: State::Reserved, waiter });
        Ok(())
    }

    /// The application is being asked: reports count from here.
    pub(super) fn hand_over(&mut self, id: ExecutionId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = State::Asked;
        }
    }

    /// The run needs no answer any more.
    pub(super) fn remove(&mut self, id: ExecutionId) {
        self.entries.remove(&id);
    }

    /// The waiter of the execution that a report is about, which goes on.
    pub(super) fn find(&self, caller: &Principal, identity: &ExecutionIdentity) -> Result<&W, Refusal> {
        let id = self.check(caller, identity)?;
        self.entries.get(&id).map(|entry| &entry.waiter).ok_or(Refusal::NotFound)
    }

    /// The waiter of the execution whose end is reported. It is over: a second report finds nothing.
    pub(super) fn claim(&mut self, caller: &Principal, identity: &ExecutionIdentity) -> Result<W, Refusal> {
        let id = self.check(caller, identity)?;
        self.entries.remove(&id).map(|entry| entry.waiter).ok_or(Refusal::NotFound)
    }

    /// The checks of contract 7.6 on who reports what, in their order.
    fn check(&self, caller: &Principal, identity: &ExecutionIdentity) -> Result<ExecutionId, Refusal> {
        let found = ExecutionId::parse(&identity.execution_id)
            .and_then(|id| self.entries.get(&id).map(|entry| (id, entry)))
            // Another's execution goes the same way as an unknown id: nobody must learn that it exists (law 4).
            .filter(|(_, entry)| entry.bound.subject == caller.subject)
            .filter(|(_, entry)| entry.state == State::Asked && !entry.waiter.is_aborted());
        let Some((id, Entry { bound, .. })) = found else { return Err(Refusal::NotFound) };
        if !caller.grants.providers.allows(bound.provider.as_str())
            || !caller.grants.application_tools.allows(bound.tool.as_str())
        {
            return Err(Refusal::Forbidden);
        }
        if RunId::parse(&identity.run_id) != Some(bound.run_id) || identity.call_id != bound.call_id.as_str()
        {
            return Err(Refusal::Mismatch);
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use countersign_approval_core::grants::{Allow, Grants};
    use countersign_testkit::CountingIds;

    use super::*;
    use countersign_approval_core::ids::Ids;

    /// Its run is aborted once the flag is set.
    #[derive(Debug, Clone, Default)]
    struct Run(Rc<Cell<bool>>);

    impl Waiter for Run {
        fn is_aborted(&self) -> bool {
            self.0.get()
        }
    }

    struct World {
        registry: Registry<Run>,
        ids: CountingIds,
        run: RunId,
    }

    impl World {
        fn new(max_pending: usize) -> Self {
            let ids = CountingIds::default();
            Self { registry: Registry::new(max_pending), run: RunId::new(ids.uuid()), ids }
        }

        fn reserve(&mut self, waiter: &Run) -> Result<ExecutionId, Full> {
            let id = ExecutionId::new(self.ids.uuid());
            let bound = Bound {
                subject: Subject::parse("ann").unwrap(),
                provider: ProviderId::parse("mock").unwrap(),
                run_id: self.run,
                call_id: CallId::parse("call-1").unwrap(),
                tool: ToolName::parse("pick").unwrap(),
            };
            self.registry.reserve(id, bound, waiter.clone()).map(|()| id)
        }

        fn asked(&mut self) -> ExecutionIdentity {
            let id = self.reserve(&Run::default()).unwrap();
            self.registry.hand_over(id);
            self.identity(id)
        }

        fn identity(&self, id: ExecutionId) -> ExecutionIdentity {
            let (execution_id, run_id) = (id.to_string(), self.run.to_string());
            ExecutionIdentity { execution_id, run_id, call_id: "call-1".into() }
        }
    }

    fn who(subject: &str) -> Principal {
        Principal { subject: Subject::parse(subject).unwrap(), grants: Grants::all() }
    }

    // Contract 7.6, "accepted, single use"; law 1.
    #[test]
    fn an_end_is_taken_once_and_progress_as_often_as_it_comes() {
        let mut world = World::new(2);
        let identity = world.asked();
        for _ in 0..3 {
            world.registry.find(&who("ann"), &identity).unwrap();
        }
        assert_eq!(world.registry.pending(), 1);
        world.registry.claim(&who("ann"), &identity).unwrap();
        assert_eq!(world.registry.pending(), 0, "its capacity is free");
        assert_eq!(world.registry.claim(&who("ann"), &identity).unwrap_err(), Refusal::NotFound);
        assert_eq!(world.registry.find(&who("ann"), &identity).unwrap_err(), Refusal::NotFound);
    }

    // Contract 7.6, the order: unknown, other subject, aborted; grants; mismatch. A refusal consumes nothing.
    #[test]
    fn refusals_in_their_order() {
        let mut world = World::new(9);
        let identity = world.asked();
        let only = |providers: &[&str], tools: &[&str]| Principal {
            grants: Grants {
                providers: Allow::only(providers.iter().copied()),
                application_tools: Allow::only(tools.iter().copied()),
                ..Grants::all()
            },
            ..who("ann")
        };
        let wrong = ExecutionIdentity { call_id: "call-2".into(), ..identity.clone() };
        let unknown = ExecutionIdentity {
            execution_id: ExecutionId::new(world.ids.uuid()).to_string(),
            ..identity.clone()
        };
        let respelled =
            ExecutionIdentity { execution_id: identity.execution_id.replace('-', ""), ..identity.clone() };
        let other_run = ExecutionIdentity { run_id: "r".into(), ..identity.clone() };
        for (why, caller, identity, expected) in [
            ("unknown", who("ann"), &unknown, Refusal::NotFound),
            ("another spelling", who("ann"), &respelled, Refusal::NotFound),
            ("other subject, whatever else is wrong", who("bob"), &wrong, Refusal::NotFound),
            ("no provider", only(&[], &["pick"]), &wrong, Refusal::Forbidden),
            ("no tool", only(&["mock"], &["other"]), &wrong, Refusal::Forbidden),
            ("another call", only(&["mock"], &["pick"]), &wrong, Refusal::Mismatch),
            ("another run", who("ann"), &other_run, Refusal::Mismatch),
        ] {
            assert_eq!(world.registry.find(&caller, identity).unwrap_err(), expected, "{why}");
            assert_eq!(world.registry.claim(&caller, identity).unwrap_err(), expected, "{why}");
        }
        world.registry.claim(&who("ann"), &identity).unwrap();
    }

    // Law 5: what nobody was asked for, and what its run has given up, cannot be answered.
    #[test]
    fn nothing_counts_before_the_question_or_after_the_run() {
        let mut world = World::new(9);
        let (aborted, run) = (Rc::new(Cell::new(false)), Run::default());
        let id = world.reserve(&run).unwrap();
        let identity = world.identity(id);
        assert_eq!(world.registry.claim(&who("ann"), &identity).unwrap_err(), Refusal::NotFound, "reserved");
        world.registry.hand_over(id);
        run.0.set(true);
        assert_eq!(world.registry.claim(&who("ann"), &identity).unwrap_err(), Refusal::NotFound, "aborted");
        assert_eq!(world.registry.pending(), 1, "its run takes it away");
        world.registry.remove(id);
        assert_eq!(world.registry.pending(), 0);
        world.registry.hand_over(id);
        let id = world.reserve(&Run(aborted)).unwrap();
        world.registry.hand_over(id);
        world.registry.claim(&who("ann"), &world.identity(id)).unwrap();
    }

    // Contract 7.6, `maxPending`; law 9: at its edge.
    #[test]
    fn capacity_at_its_edge() {
        let mut world = World::new(2);
        let first = world.reserve(&Run::default()).unwrap();
        world.reserve(&Run::default()).unwrap();
        assert_eq!(world.reserve(&Run::default()), Err(Full));
        assert_eq!(world.registry.check_capacity(), Err(Full));
        world.registry.remove(first);
        world.reserve(&Run::default()).unwrap();
    }
}
