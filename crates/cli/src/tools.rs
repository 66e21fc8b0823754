//! The members of the configuration that the binary takes out of the file: `tools` and `audit`, and the commands that a
//! file of functions declares (design 7). Strict, as the rest of it: every error names its field.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_approval_core::json::{Document, Exact, Node};
use countersign_driver::{InvalidTool, ToolSpec};
use countersign_host::StartError;
use countersign_protocol::code::Code;

use crate::command::Program;
use crate::command_tool::CommandTool;

/// The most tools of one host; a request may select 32 (contract 2).
pub(crate) const MAX_TOOLS: usize = 256;
/// The most words of one command, and entries of one environment.
const MAX_WORDS: usize = 256;
/// The longest description of a tool, in bytes.
pub(crate) const MAX_DESCRIPTION: usize = 10_000;

/// `tools`: commands that run in `base`, the folder of the configuration.
pub(crate) fn tools(value: &Exact, base: &Path) -> Result<Vec<CommandTool>, StartError> {
    let document = document(value, "tools")?;
    let entries = document.root().as_array().ok_or_else(|| invalid("tools", "expected an array"))?;
    let mut tools = Vec::new();
    for (at, node) in entries.enumerate() {
        if at == MAX_TOOLS {
            return Err(invalid("tools", format!("more than {MAX_TOOLS}")));
        }
        tools.push(tool(Entry::new(node, format!("tools[{at}]"))?, base)?);
    }
    Ok(tools)
}

/// `audit`: the path of the audit file, resolved.
pub(crate) fn audit(value: &Exact, base: &Path) -> Result<PathBuf, StartError> {
    let document = document(value, "audit")?;
    let mut entry = Entry::new(document.root(), "audit".into())?;
    let file = entry.required("file")?.string(1..=4096)?;
    entry.finish()?;
    Ok(base.join(file))
}

fn tool(mut entry: Entry<'_>, base: &Path) -> Result<CommandTool, StartError> {
    let name = entry.required("name")?;
    let description = entry.required("description")?.string(0..=MAX_DESCRIPTION)?;
    let schema = entry.required("inputSchema")?;
    let review = entry.required("requiresApproval")?;
    let command = Command::of(&mut entry)?;
    entry.finish()?;
    if schema.node.as_object().is_none() {
        return Err(schema.invalid("expected an object"));
    }
    let spec =
        ToolSpec::new(&name.string(0..=64)?, description, schema.node.raw()).map_err(
            |error| match error {
                InvalidTool::Name(_) => name.invalid(error.to_string()),
                // Its field says already that it is the schema.
                InvalidTool::SchemaText(refused) => schema.invalid(refused.to_string()),
                _ => schema.invalid(error.to_string()),
            },
        )?;
    let spec = match review.node.as_bool() {
        Some(true) => spec.requires_approval(),
        Some(false) => spec,
        None => return Err(review.invalid("expected true or false")),
    };
    let program = command.program(spec.name.as_str(), base)?;
    Ok(CommandTool { spec, program })
}

/// The members of an entry that say what is started.
pub(crate) struct Command<'d> {
    words: Field<'d>,
    timeout: Option<Duration>,
    extra: BTreeMap<String, String>,
}

impl<'d> Command<'d> {
    pub(crate) fn of(entry: &mut Entry<'d>) -> Result<Self, StartError> {
        let words = entry.required("command")?;
        let timeout = entry.optional("timeoutMs").map(|field| timeout(&field)).transpose()?;
        let extra = entry.optional("env").map(|field| environment(&field)).transpose()?.unwrap_or_default();
        Ok(Self { words, timeout, extra })
    }

    /// What runs in `base`, the folder of the file.
    pub(crate) fn program(self, name: &str, base: &Path) -> Result<Program, StartError> {
        let (path, arguments) = words(&self.words, base)?;
        let (name, folder) = (name.to_owned(), base.to_owned());
        Ok(Program { name, path, arguments, folder, timeout: self.timeout, extra: self.extra })
    }
}

/// The program, found now so that a wrong name shows at start (law 7), and its arguments.
fn words(field: &Field<'_>, base: &Path) -> Result<(PathBuf, Vec<String>), StartError> {
    let elements = field.node.as_array().ok_or_else(|| field.invalid("expected an array of strings"))?;
    let mut words = Vec::new();
    for (at, node) in elements.enumerate() {
        let field = Field { node, path: format!("{}[{at}]", field.path) };
        if at == MAX_WORDS {
            return Err(field.invalid(format!("more than {MAX_WORDS} words")));
        }
        words.push(field.string(0..=128_000)?);
    }
    let mut words = words.into_iter();
    let name = words.next().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| field.invalid("expected a program and its arguments"))?;
    let program = find(&name, base)
        .ok_or_else(|| field.invalid(format!("there is no program {name:?} that can be executed")))?;
    Ok((program, words.collect()))
}

/// A name with a slash is a path from the configuration's folder; any other is looked up in PATH.
fn find(name: &str, base: &Path) -> Option<PathBuf> {
    let executable = |path: PathBuf| {
        let metadata = path.metadata().ok()?;
        (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(path)
    };
    if name.contains('/') {
        return executable(base.join(name));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .find_map(|folder| executable(folder.join(name)))
}

fn timeout(field: &Field<'_>) -> Result<Duration, StartError> {
    match field.node.as_integer() {
        Some(millis @ 1..=2_147_483_647) => Ok(Duration::from_millis(millis.unsigned_abs())),
        _ => Err(field.invalid("expected an integer from 1 to 2147483647")),
    }
}

fn environment(field: &Field<'_>) -> Result<BTreeMap<String, String>, StartError> {
    let members = field.node.as_object().ok_or_else(|| field.invalid("expected an object of strings"))?;
    let mut variables = BTreeMap::new();
    for (name, node) in members {
        let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        let good =
            name.bytes().all(|b| letter(b) || b.is_ascii_digit()) && name.bytes().next().is_some_and(letter);
        if !good {
            return Err(field.invalid("a name must match ^[A-Za-z_][A-Za-z0-9_]*$"));
        }
        if name.starts_with("COUNTERSIGN_") {
            return Err(field.invalid("names that begin with COUNTERSIGN_ are set by the host"));
        }
        if variables.len() == MAX_WORDS {
            return Err(field.invalid(format!("more than {MAX_WORDS} variables")));
        }
        let value = Field { node, path: format!("{}.{name}", field.path) }.string(0..=128_000)?;
        variables.insert(name.into_owned(), value);
    }
    Ok(variables)
}

pub(crate) fn document<'a>(value: &'a Exact, name: &str) -> Result<Document<'a>, StartError> {
    Document::parse(value.text()).map_err(|refused| invalid(name, refused.to_string()))
}

fn invalid(field: impl Into<String>, reason: impl Into<String>) -> StartError {
    StartError::Field { code: Code::INVALID_CONFIG, field: field.into(), reason: reason.into() }
}

/// A value with its path.
pub(crate) struct Field<'d> {
    pub(crate) node: Node<'d>,
    path: String,
}

impl Field<'_> {
    pub(crate) fn invalid(&self, reason: impl Into<String>) -> StartError {
        invalid(&self.path, reason)
    }

    /// Text of a length in bytes, that the system can take.
    pub(crate) fn string(&self, bytes: std::ops::RangeInclusive<usize>) -> Result<String, StartError> {
        let text = self.node.as_str().ok_or_else(|| self.invalid("expected a string"))?;
        if !bytes.contains(&text.len()) {
            return Err(self.invalid(format!("expected {} to {} bytes", bytes.start(), bytes.end())));
        }
        if text.contains('\0') {
            return Err(self.invalid("it holds a NUL character"));
        }
        Ok(text.into_owned())
    }
}

/// An object whose members are taken one by one.
pub(crate) struct Entry<'d> {
    members: Vec<(String, Node<'d>)>,
    path: String,
}

impl<'d> Entry<'d> {
    pub(crate) fn new(node: Node<'d>, path: String) -> Result<Self, StartError> {
        let members = node.as_object().ok_or_else(|| invalid(&path, "expected an object"))?;
        Ok(Self { members: members.map(|(name, node)| (name.into_owned(), node)).collect(), path })
    }

    pub(crate) fn optional(&mut self, name: &str) -> Option<Field<'d>> {
        let at = self.members.iter().position(|(known, _)| known == name)?;
        Some(Field { node: self.members.swap_remove(at).1, path: self.member(name) })
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<Field<'d>, StartError> {
        self.optional(name).ok_or_else(|| invalid(self.member(name), "required"))
    }

    /// The path of a member; a file's own members have none before them.
    fn member(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(crate) fn finish(self) -> Result<(), StartError> {
        match self.members.first() {
            Some((name, _)) => {
                let name: String = name.chars().take(64).collect();
                Err(invalid(self.member(&name), "unknown member"))
            }
            None => Ok(()),
        }
    }
}
