//! Putting calls together from fragments (scenarios M5 and M7): each fragment has exactly one call that it can belong
//! to, or the answer is refused. Two calls are never merged into one, and none is dropped.

use std::collections::BTreeMap;

use countersign_driver::provider::ProposedCall;

use super::wire::CallPart;

/// Indexes are below this (contract 11).
const MAX_CALLS: u64 = 32;

/// The calls so far, by index.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<u64, ProposedCall>);

/// Whether a fragment told anything new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Something,
    Nothing,
}

impl Calls {
    /// Takes a fragment.
    pub(super) fn take(&mut self, part: CallPart) -> Result<Heard, &'static str> {
        if !matches!(part.kind.as_deref(), None | Some("" | "function")) {
            return Err("a call that is not a function call");
        }
        let index = self.index(&part)?;
        let function = part.function.unwrap_or_default();
        let call = self.0.entry(index).or_insert_with(|| ProposedCall {
            id: String::new(),
            name: String::new(),
            arguments: String::new(),
        });
        let id = settle(&mut call.id, part.id, "one index, two call ids")?;
        let name = settle(&mut call.name, function.name, "one call, two names")?;
        let arguments = function.arguments.unwrap_or_default();
        call.arguments.push_str(&arguments);
        let nothing = id == Heard::Nothing && name == Heard::Nothing && arguments.is_empty();
        Ok(if nothing { Heard::Nothing } else { Heard::Something })
    }

    /// The calls in the model's order.
    ///
    /// A call may still lack its id: the driver refuses it (contract 7.3), and an invented one would be an answer to a
    /// call that the vendor does not know.
    pub(super) fn finish(self) -> Result<Vec<ProposedCall>, &'static str> {
        let calls: Vec<_> = self.0.into_values().collect();
        if calls.iter().any(|call| call.name.is_empty()) {
            return Err("a call without a name");
        }
        Ok(calls)
    }

    /// Which call the fragment belongs to. Some servers leave the index out: then the id says it, or there is only one
    /// call that could be meant; and nothing in the fragment may begin another call.
    fn index(&self, part: &CallPart) -> Result<u64, &'static str> {
        let named = part.function.as_ref().and_then(|function| function.name.as_deref());
        let begins = named.is_some_and(|name| !name.is_empty());
        let index = match (part.index, part.id.as_deref().filter(|id| !id.is_empty())) {
            (Some(index), _) => index,
            (None, Some(id)) => match self.0.iter().find(|(_, call)| call.id == id) {
                // The same id for two calls is not ours to mend, and nobody could tell them apart (scenario M7).
                Some(_) if begins => return Err("a call id that comes twice, without an index"),
                Some((index, _)) => *index,
                None => self.0.last_key_value().map_or(0, |(last, _)| last + 1),
            },
            (None, None) => {
                if self.0.len() != 1 || begins {
                    return Err("a fragment that does not say which call it belongs to");
                }
                self.0.keys().next().copied().unwrap_or_default()
            }
        };
        if index < MAX_CALLS { Ok(index) } else { Err("a call's index is out of range") }
    }
}

/// Ids and names come once. Some servers repeat them whole with each fragment, or send them empty later.
fn settle(known: &mut String, told: Option<String>, conflict: &'static str) -> Result<Heard, &'static str> {
    match told {
        Some(told) if !told.is_empty() && *known != told => {
            if known.is_empty() {
                *known = told;
                Ok(Heard::Something)
            } else {
                Err(conflict)
            }
        }
        _ => Ok(Heard::Nothing),
    }
}
