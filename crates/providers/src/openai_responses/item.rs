//! One item of an answer, from its first event to its last.
//!
//! What a call's arguments are is said up to four times: in fragments, at their end, at the item's end, and in the whole
//! answer. All must be the same text, so that no fragment was lost and none belongs to another call (scenarios M3, M5).

use countersign_driver::provider::{ProposedCall, ProviderError};
use countersign_protocol::code::Code;
use serde::Serialize;
use serde_json::value::RawValue;

use super::wire::{self, invalid};

/// What has been heard of an item.
#[derive(Debug, Default)]
pub(super) struct Item {
    kind: Option<Kind>,
    id: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    /// The text of a message or the arguments of a call, as far as fragments said it.
    pieces: Option<String>,
    /// The arguments, as their end said them.
    arguments: Option<String>,
    /// The item in its last form.
    done: Option<Done>,
}

/// An item that is complete.
#[derive(Debug)]
pub(super) struct Done {
    /// Its JSON text, as the vendor wrote it.
    pub(super) native: Box<str>,
    pub(super) meaning: Meaning,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Message(String),
    Call(ProposedCall),
    Reasoning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Call,
    Reasoning,
}

impl Kind {
    /// No other kind was asked for, and none could be reviewed (law 3).
    fn parse(kind: &str) -> Result<Self, ProviderError> {
        match kind {
            "message" => Ok(Self::Message),
            "function_call" => Ok(Self::Call),
            "reasoning" => Ok(Self::Reasoning),
            _ => Err(invalid("an item that is neither a message nor a function call nor reasoning")),
        }
    }
}

impl Item {
    /// The item begins.
    pub(super) fn begin(&mut self, raw: &RawValue) -> Result<(), ProviderError> {
        let item = wire::Item::parse(raw)?;
        if self.kind.is_some() {
            return Err(invalid("an item that begins twice"));
        }
        self.settle(&item).map(drop)
    }

    /// A fragment, or the end of the arguments, of an item of this kind.
    pub(super) fn expect(&mut self, kind: Kind, id: Option<String>) -> Result<&mut Self, ProviderError> {
        if self.kind != Some(kind) || self.done.is_some() {
            return Err(invalid("a fragment that belongs to no such item"));
        }
        if id.is_some() && self.id.is_some() && id != self.id {
            return Err(invalid("one item, two ids"));
        }
        Ok(self)
    }

    pub(super) fn add(&mut self, piece: &str) {
        self.pieces.get_or_insert_default().push_str(piece);
    }

    pub(super) fn end_arguments(&mut self, arguments: Option<String>) -> Result<(), ProviderError> {
        match self.arguments.replace(arguments.unwrap_or_default()) {
            Some(_) => Err(invalid("arguments that end twice")),
            None => Ok(()),
        }
    }

    /// The item is complete. Gives what was not heard of its text before.
    pub(super) fn end(&mut self, raw: &RawValue) -> Result<Option<String>, ProviderError> {
        if self.done.is_some() {
            return Err(invalid("an item that ends twice"));
        }
        let item = wire::Item::parse(raw)?;
        let kind = self.settle(&item)?;
        let done = Done::of(kind, &item, raw)?;
        let unheard = match &done.meaning {
            Meaning::Message(text) => match &self.pieces {
                Some(pieces) if pieces != text => return Err(invalid("a message in two versions")),
                Some(_) => None,
                None => Some(text.clone()),
            },
            Meaning::Call(call) => {
                let said = [&self.pieces, &self.arguments];
                if said.into_iter().flatten().any(|said| *said != call.arguments) {
                    return Err(invalid("a call's arguments in two versions"));
                }
                None
            }
            Meaning::Reasoning => None,
        };
        self.done = Some(done);
        Ok(unheard)
    }

    /// The finished item; none if its end was never heard.
    pub(super) fn into_done(self) -> Option<Done> {
        self.done
    }

    pub(super) fn is_call(&self) -> bool {
        self.kind == Some(Kind::Call)
    }

    /// What is said of an item more than once is said alike.
    fn settle(&mut self, item: &wire::Item<'_>) -> Result<Kind, ProviderError> {
        let kind = Kind::parse(&item.kind)?;
        let alike = self.kind.is_none_or(|known| known == kind)
            && same(&mut self.id, item.id.as_ref())
            && same(&mut self.call_id, item.call_id.as_ref())
            && same(&mut self.name, item.name.as_ref());
        self.kind = Some(kind);
        if alike { Ok(kind) } else { Err(invalid("an item in two versions")) }
    }
}

impl Done {
    pub(super) fn parse(raw: &RawValue) -> Result<Self, ProviderError> {
        let item = wire::Item::parse(raw)?;
        Self::of(Kind::parse(&item.kind)?, &item, raw)
    }

    fn of(kind: Kind, item: &wire::Item<'_>, raw: &RawValue) -> Result<Self, ProviderError> {
        let meaning = match kind {
            Kind::Message => Meaning::Message(item.text()?),
            Kind::Call => Meaning::Call(call(item)?),
            Kind::Reasoning => Meaning::Reasoning,
        };
        let native = match &meaning {
            Meaning::Call(call) if call.arguments.trim_ascii().is_empty() => without_arguments(item, call)?,
            _ => raw.get().into(),
        };
        Ok(Self { native, meaning })
    }
}

/// A call without arguments is executed with the empty object, and the model is told what was executed (scenario M13).
/// Nothing at all would not be JSON, which vendors refuse when they read it.
fn without_arguments(item: &wire::Item<'_>, call: &ProposedCall) -> Result<Box<str>, ProviderError> {
    #[derive(Serialize)]
    struct Native<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        call_id: &'a str,
        name: &'a str,
        arguments: &'static str,
    }
    let native = Native {
        kind: "function_call",
        id: item.id.as_deref(),
        call_id: &call.id,
        name: &call.name,
        arguments: "{}",
    };
    let text = serde_json::to_string(&native)
        .map_err(|error| ProviderError::new(Code::INTERNAL_ERROR).with_source(error))?;
    Ok(text.into())
}

/// A call may still lack its id: the driver refuses it (contract 7.3), and an invented one would be an answer to a call
/// that the vendor does not know.
fn call(item: &wire::Item<'_>) -> Result<ProposedCall, ProviderError> {
    match item.status.as_deref() {
        None | Some("" | "completed") => {}
        // The answer may call itself complete all the same (M3).
        Some("incomplete") => return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL)),
        Some(_) => return Err(invalid("a call that is not complete")),
    }
    let name = item.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(invalid("a call without a name"));
    }
    Ok(ProposedCall {
        id: item.call_id.clone().unwrap_or_default(),
        name,
        arguments: item.arguments.clone().unwrap_or_default(),
    })
}

/// Whether `told` is what is known, if anything is.
fn same(known: &mut Option<String>, told: Option<&String>) -> bool {
    match (known.as_ref().filter(|known| !known.is_empty()), told) {
        (Some(known), Some(told)) => known == told,
        (_, Some(told)) => {
            *known = Some(told.clone());
            true
        }
        (_, None) => true,
    }
}
