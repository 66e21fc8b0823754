//! What a vendor must be able to say, and how the suite asks for it.

use countersign_driver::provider::Provider;
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use countersign_providers::Error;
use url::Url;

/// One vendor's wire form: how each situation looks in it. It holds no expectation; those are the suite's.
pub(crate) trait Vendor: 'static {
    /// What its wire form cannot say. The suite leaves these out for it, and nothing else.
    const CANNOT: &'static [Unsayable];

    /// The request header that shows the key, in lower case, and what stands before the key in it.
    const KEY_HEADER: (&'static str, &'static str);

    /// A provider `local` with the one model `demo`, asked to stream, whose base URL is `server`.
    fn provider(server: Url, key: &str) -> Result<Box<dyn Provider>, Error>;

    /// The whole body of a `text/event-stream` answer.
    fn stream(said: &Said) -> String;

    /// The same answer as one JSON object; never asked for with [`Ending::Open`].
    fn whole(said: &Said) -> String;

    /// The status line after the version, and the body, with which the vendor refuses; `words` stands in its message.
    fn refusal(trouble: Trouble, words: &str) -> (&'static str, String);

    /// The bytes with which it says so inside a stream.
    fn trouble_in_stream(trouble: Trouble, words: &str) -> String;

    /// What a request body tells the model.
    fn asked(body: &str) -> Asked;

    fn can(what: Unsayable) -> bool {
        !Self::CANNOT.contains(&what)
    }
}

/// What some vendors have no words for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each is some vendor's, and a build may leave that vendor out")]
pub(crate) enum Unsayable {
    /// Argument text that is not JSON: the wire carries a JSON value.
    ArgumentsThatAreNotJson,
    /// Fragments of two calls that take turns.
    Interleaved,
    /// A call without an id is ordinary, and its provider gives it one.
    CallsWithoutId,
    /// Reasoning that must be told again, and comes back as it was sent.
    Reasoning,
    /// Tokens that came from a cache.
    CachedTokens,
    /// Tokens of reasoning.
    ReasoningTokens,
}

/// One answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(crate) parts: Vec<Part>,
    pub(crate) usage: Usage,
    pub(crate) ending: Ending,
}

/// A piece of an answer, in the order of the wire.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// A piece of text.
    Text(String),
    /// Opaque reasoning that the vendor wants back.
    Reasoning(String),
    /// A call begins. Calls count from 0 in the model's order.
    Call { call: usize, id: Option<String>, name: String },
    /// A fragment of its argument text.
    Arguments { call: usize, text: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The model was done, with or without calls.
    Done,
    /// The token limit.
    Length,
    /// The model or its vendor refuses to answer.
    Refused,
    /// The stream ends in good order, but without what says that the answer is complete.
    Open,
}

/// The ways in which a vendor does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    WrongKey,
    Forbidden,
    NoSuchModel,
    Busy,
    TooLong,
    Broken,
    Overloaded,
}

/// What a request told the model, in no vendor's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) instructions: Option<String>,
    pub(crate) messages: Vec<Told>,
    /// Name, description, schema text.
    pub(crate) tools: Vec<(String, String, String)>,
    pub(crate) max_output_tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    User(String),
    Assistant(String),
    /// The opaque text of [`Part::Reasoning`].
    Reasoning(String),
    /// `id` is what the vendor sees; none if it is not told one.
    Call {
        id: Option<String>,
        name: String,
        arguments: String,
    },
    /// `output` is the text of the output itself, without the vendor's envelope.
    Output {
        id: Option<String>,
        output: String,
    },
}

impl Said {
    pub(crate) fn text(pieces: &[&str]) -> Self {
        Self {
            parts: pieces.iter().map(|piece| Part::Text((*piece).to_owned())).collect(),
            usage: Usage::default(),
            ending: Ending::Done,
        }
    }

    /// Calls of `(id, name, fragments of the argument text)`, one after the other.
    pub(crate) fn calls(calls: &[(&str, &str, &[&str])]) -> Self {
        calls.iter().fold(Self::text(&[]), |said, (id, name, fragments)| said.and_call(id, name, fragments))
    }

    pub(crate) fn and_call(mut self, id: &str, name: &str, fragments: &[&str]) -> Self {
        let call = self.call_count();
        self.parts.push(Part::Call { call, id: Some(id.to_owned()), name: name.to_owned() });
        self.parts.extend(fragments.iter().map(|text| Part::Arguments { call, text: (*text).to_owned() }));
        self
    }

    pub(crate) fn ending(self, ending: Ending) -> Self {
        Self { ending, ..self }
    }

    pub(crate) fn using(self, usage: Usage) -> Self {
        Self { usage, ..self }
    }

    pub(crate) fn call_count(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Call { .. })).count()
    }

    /// All of the text.
    pub(crate) fn whole_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
            .collect()
    }

    /// The calls as `(id, name, whole argument text)`.
    pub(crate) fn whole_calls(&self) -> Vec<(Option<String>, String, String)> {
        let mut calls = Vec::new();
        for part in &self.parts {
            match part {
                Part::Call { id, name, .. } => calls.push((id.clone(), name.clone(), String::new())),
                Part::Arguments { call, text } => calls[*call].2.push_str(text),
                Part::Text(_) | Part::Reasoning(_) => {}
            }
        }
        calls
    }

    /// Whether nothing more of the call at `index` comes after the part at `at`.
    #[allow(dead_code, reason = "for vendors that say when a call is complete")]
    pub(crate) fn is_last_of(&self, index: usize, at: usize) -> bool {
        self.parts[at + 1..]
            .iter()
            .all(|part| !matches!(part, Part::Arguments { call, .. } if *call == index))
    }
}

impl Trouble {
    pub(crate) const ALL: [Self; 7] = [
        Self::WrongKey,
        Self::Forbidden,
        Self::NoSuchModel,
        Self::Busy,
        Self::TooLong,
        Self::Broken,
        Self::Overloaded,
    ];

    /// Contract 11, "Common", and 5.3: the code and its retry hint.
    pub(crate) fn expected(self) -> (Code, bool) {
        match self {
            Self::WrongKey | Self::Forbidden => (Code::PROVIDER_AUTH, false),
            Self::NoSuchModel | Self::TooLong => (Code::PROVIDER_ERROR, false),
            Self::Busy => (Code::RATE_LIMITED, true),
            Self::Broken | Self::Overloaded => (Code::PROVIDER_ERROR, true),
        }
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// A JSON value as a wire that carries values tells it: its tokens, without the white space that says nothing.
#[allow(dead_code, reason = "for vendors that carry arguments as a value")]
pub(crate) fn without_space(json: &str) -> String {
    super::fidelity::tokens(json)
}
