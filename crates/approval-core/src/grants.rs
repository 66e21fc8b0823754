//! Grants: who may invoke what, and who may decide what.

use std::collections::BTreeSet;

use crate::ids::Subject;

/// A list of names that a token carries, or no restriction for an embedder that sets none (contract 4.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// Every name.
    All,
    /// These names and no other; empty means none.
    Only(BTreeSet<Box<str>>),
}

impl Allow {
    /// No name at all.
    pub const fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// Exactly these names.
    pub fn only<I, S>(names: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Box<str>>,
    {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// Whether the name is granted.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// What a principal may do (contract 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// Provider instances.
    pub providers: Allow,
    /// Host tools that may be selected for a run.
    pub tools: Allow,
    /// Tools whose reviews may be decided.
    pub approve_tools: Allow,
    /// Application tools that a run may bring, and whose executions may be reported (contract 7.6).
    pub application_tools: Allow,
    /// Those of them that this credential does not ask to be reviewed (`requiresApproval: false`). The host and the
    /// definition may ask all the same.
    pub unreviewed_application_tools: Allow,
}

impl Grants {
    /// An embedder that sets no restriction.
    pub const fn all() -> Self {
        Self {
            providers: Allow::All,
            tools: Allow::All,
            approve_tools: Allow::All,
            application_tools: Allow::All,
            unreviewed_application_tools: Allow::All,
        }
    }
}

/// Who calls: the subject that authentication established, with the grants of the credential used (law 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The authenticated identity.
    pub subject: Subject,
    /// What this credential may do.
    pub grants: Grants,
}

impl Principal {
    /// The embedder itself: subject `local`, no restriction.
    pub fn local() -> Self {
        Self { subject: Subject::local(), grants: Grants::all() }
    }
}
