//! What is refused before anything runs: modules, literals that would be rounded, crowded scopes.

use std::collections::HashSet;

use countersign_approval_core::json::Exact;
use oxc_ast::ast::{
    AccessorProperty, BindingIdentifier, Decorator, Function, ImportExpression, ImportMeta,
    ModuleDeclaration, NumericLiteral, Program, PropertyKey, RegExpLiteral, StringLiteral, TSEnumDeclaration,
    TSExternalModuleDeclaration, TSGlobalDeclaration, TSNamespaceDeclaration, TemplateElement,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::Span;
use oxc_syntax::scope::ScopeFlags;

use super::Problem;

/// Names that one function may declare: the engine's compiler is quadratic in them.
const MAX_BINDINGS: usize = 5_000;

/// Classes of characters by property (`\\p{L}`) in the literals of one source: each costs the engine's compiler up to a
/// millisecond and kilobytes, and it can be neither interrupted nor limited.
const MAX_PROPERTIES: usize = 500;

/// Looks at the tree once; [`Check::finish`] answers with the first problem.
pub(super) struct Check<'s> {
    source: &'s str,
    problem: Option<Problem>,
    /// Names declared so far in each function that is open, the program first.
    bindings: Vec<usize>,
    /// Spans whose text is no code, in no order.
    texts: HashSet<Span>,
    properties: usize,
}

impl<'s> Check<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, problem: None, bindings: vec![0], texts: HashSet::new(), properties: 0 }
    }

    pub(super) fn finish(mut self, program: &Program<'_>) -> Result<(), Problem> {
        self.html_comments(program);
        self.problem.map_or(Ok(()), Err)
    }

    fn refuse(&mut self, span: Span, message: impl Into<String>) {
        let earlier = self.problem.as_ref().is_some_and(|known| known.span.start <= span.start);
        if !earlier {
            self.problem = Some(Problem { span, message: message.into() });
        }
    }

    fn binds(&mut self, span: Span) {
        if let Some(count) = self.bindings.last_mut() {
            *count += 1;
            if *count == MAX_BINDINGS + 1 {
                self.refuse(span, format!("more than {MAX_BINDINGS} names in one function"));
            }
        }
    }

    /// `<!--` and `-->` begin a comment for the engine, which compiles a script, and are operators for our parser, which
    /// reads a module. Where the two differ, what was checked would not be what runs.
    fn html_comments(&mut self, program: &Program<'_>) {
        let mut texts: Vec<Span> = self.texts.iter().copied().collect();
        texts.extend(program.comments.iter().map(|comment| comment.span));
        texts.sort_unstable_by_key(|span| span.start);
        let is_text = |offset: usize| {
            let after = texts.partition_point(|span| span.start as usize <= offset);
            after.checked_sub(1).is_some_and(|at| offset < texts[at].end as usize)
        };
        for (offset, found) in self.source.match_indices("<!--").chain(self.source.match_indices("-->")) {
            if is_text(offset) {
                continue;
            }
            // `n-->0` within a line is not affected.
            let line =
                self.source[..offset].rfind(['\n', '\r', '\u{2028}', '\u{2029}']).map_or(0, |at| at + 1);
            let before = self.source.get(line..offset).unwrap_or_default();
            let code_before = before.char_indices().any(|(at, c)| !c.is_whitespace() && !is_text(line + at));
            if found == "-->" && code_before {
                continue;
            }
            let start = u32::try_from(offset).unwrap_or(0);
            self.refuse(Span::new(start, start), "HTML-like comments are not offered");
            return;
        }
    }
}

impl<'a> Visit<'a> for Check<'_> {
    fn visit_module_declaration(&mut self, it: &ModuleDeclaration<'a>) {
        self.refuse(
            oxc_span::GetSpan::span(it),
            "import and export are not offered; the functions are globals",
        );
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        self.refuse(it.span, "import() is not offered; the functions are globals");
    }

    fn visit_import_meta(&mut self, it: &ImportMeta) {
        self.refuse(it.span, "import.meta is not offered");
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        self.refuse(it.span, "enum is not offered, as it is more than a type; use an object");
    }

    fn visit_ts_external_module_declaration(&mut self, it: &TSExternalModuleDeclaration<'a>) {
        self.refuse(it.span, "module declarations are not offered");
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        self.refuse(it.span, "namespace is not offered, as it is more than a type; use an object");
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.refuse(it.span, "global declarations are not offered");
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &oxc_ast::ast::TSImportEqualsDeclaration<'a>) {
        self.refuse(it.span, "import is not offered; the functions are globals");
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(it.span, "decorators are not offered");
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.refuse(it.span, "accessor fields are not offered; write a getter and a setter");
    }

    fn visit_numeric_literal(&mut self, it: &NumericLiteral<'a>) {
        let text = it.raw.as_ref().map_or("", |raw| raw.as_str());
        if rounds(text, it.value) {
            self.refuse(
                it.span,
                format!("JavaScript would round the integer {}; write a BigInt or a string", shown(text)),
            );
        }
    }

    fn visit_string_literal(&mut self, it: &StringLiteral<'a>) {
        self.texts.insert(it.span);
    }

    fn visit_template_element(&mut self, it: &TemplateElement<'a>) {
        self.texts.insert(it.span);
    }

    fn visit_reg_exp_literal(&mut self, it: &RegExpLiteral<'a>) {
        self.texts.insert(it.span);
        let text = self.source.get(it.span.start as usize..it.span.end as usize).unwrap_or_default();
        self.properties += text.matches("\\p").count() + text.matches("\\P").count();
        if self.properties > MAX_PROPERTIES {
            self.refuse(it.span, format!("more than {MAX_PROPERTIES} times \\p in regular expressions"));
        }
    }

    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        self.binds(it.span);
    }

    fn visit_property_key(&mut self, it: &PropertyKey<'a>) {
        if let PropertyKey::PrivateIdentifier(name) = it {
            self.binds(name.span);
        }
        walk::walk_property_key(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        self.bindings.push(0);
        walk::walk_function(self, it, flags);
        self.bindings.pop();
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Whether an integer literal is another value than the double that it becomes (design 3).
fn rounds(raw: &str, value: f64) -> bool {
    let text = raw.replace('_', "").to_ascii_lowercase();
    let radix = match text.get(..2) {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => 10,
    };
    if radix != 10 {
        return exact_power_of_two_radix(text.get(2..).unwrap_or_default(), radix).is_none();
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Fractions and exponents are approximations by intent.
        return false;
    }
    let digits = text.trim_start_matches('0');
    if digits.len() <= 15 {
        return false;
    }
    // Exactly this double, or the shortest decimal that means it.
    let exact = value.is_finite() && format!("{value:.0}") == digits;
    !exact && Exact::parse(digits).is_err()
}

/// The value of the digits, if a double holds it exactly: all its set bits lie within 53.
fn exact_power_of_two_radix(digits: &str, radix: u32) -> Option<()> {
    let bits_each = radix.trailing_zeros();
    let bits = digits
        .chars()
        .filter_map(|c| c.to_digit(radix))
        .flat_map(|digit| (0..bits_each).rev().map(move |bit| digit >> bit & 1 == 1));
    let set: Vec<usize> = bits.enumerate().filter(|(_, set)| *set).map(|(at, _)| at).collect();
    let total = digits.len() * bits_each as usize;
    match (set.first(), set.last()) {
        (Some(first), Some(last)) => (last - first < 53 && total - first <= 1024).then_some(()),
        _ => Some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::rounds;

    // Design 3: an integer literal that JavaScript would round is refused, `3.14159265358979323846` is not.
    #[test]
    fn literals_that_round() {
        for (text, expected) in [
            ("0", false),
            ("9007199254740991", false),
            ("9007199254740992", false),
            ("9007199254740993", true),
            ("9007199254740994", false),
            ("9_007_199_254_740_993", true),
            ("18446744073709551616", false),
            ("18446744073709552000", false),
            ("18446744073709551615", true),
            ("123456789012345678901234567890", true),
            ("3.14159265358979323846", false),
            ("1e23", false),
            ("0x1fffffffffffff", false),
            ("0x20000000000001", true),
            ("0x20000000000000", false),
            ("0XFFFFFFFFFFFFFFFF", true),
            ("0b11", false),
            ("0o777777777777777777", true),
            ("0o777777777777777770", false),
        ] {
            let value = match text.get(..2).map(str::to_ascii_lowercase).as_deref() {
                Some("0x" | "0b" | "0o") => 0.0,
                _ => text.replace('_', "").parse().unwrap(),
            };
            assert_eq!(rounds(text, value), expected, "{text}");
        }
    }
}
