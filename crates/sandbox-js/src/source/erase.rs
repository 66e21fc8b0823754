//! TypeScript becomes JavaScript by overwriting types with spaces: every byte that stays, stays where it was.

use oxc_ast::ast::{
    ArrowFunctionExpression, Class, ClassElement, Declaration, FormalParameter, Function, FunctionType,
    Hashbang, MethodDefinition, MethodDefinitionType, PropertyDefinition, PropertyDefinitionType, Statement,
    TSAsExpression, TSInstantiationExpression, TSNonNullExpression, TSSatisfiesExpression, TSThisParameter,
    TSTypeAnnotation, TSTypeAssertion, TSTypeParameterDeclaration, TSTypeParameterInstantiation,
    VariableDeclarator,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;

use super::Problem;

const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];
const MODIFIERS: &[&str] = &["public", "private", "protected", "readonly", "override", "abstract", "declare"];

/// Collects edits of one source; [`Erase::finish`] gives the text.
pub(super) struct Erase<'s> {
    source: &'s str,
    out: Vec<u8>,
    problem: Option<Problem>,
}

impl<'s> Erase<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, out: source.as_bytes().to_vec(), problem: None }
    }

    pub(super) fn finish(self) -> Result<String, Problem> {
        match self.problem {
            Some(problem) => Err(problem),
            None => String::from_utf8(self.out).map_err(|_| Problem {
                span: Span::new(0, 0),
                message: "the types of this source could not be erased".to_owned(),
            }),
        }
    }

    fn refuse(&mut self, span: Span, message: &str) {
        self.problem.get_or_insert_with(|| Problem { span, message: message.to_owned() });
    }

    fn text(&self, from: usize, to: usize) -> &'s str {
        self.source.get(from..to).unwrap_or_default()
    }

    /// Overwrites with spaces, line ends kept.
    fn blank(&mut self, from: usize, to: usize) {
        for (at, c) in self.text(from, to).char_indices() {
            if !LINE_ENDS.contains(&c) {
                self.out[from + at..from + at + c.len_utf8()].fill(b' ');
            }
        }
    }

    fn blank_span(&mut self, span: Span) {
        self.blank(span.start as usize, span.end as usize);
    }

    /// A declaration that disappears still ends the statement before it.
    fn blank_statement(&mut self, span: Span) {
        self.blank_span(span);
        if let Some(first) = self.out.get_mut(span.start as usize) {
            *first = b';';
        }
    }

    /// A statement that relied on the line end after a type: without the type, the next line could continue it.
    fn end_statement(&mut self, span: Span) {
        let Some(last) = (span.end as usize).checked_sub(1) else { return };
        let erased = self.out.get(last) == Some(&b' ') && self.source.as_bytes().get(last) != Some(&b' ');
        if erased {
            self.out[last] = b';';
        }
    }

    /// `?` or `!` after a name: `x?: number`, `let x!: number`.
    fn blank_mark(&mut self, from: usize) {
        let mut at = self.code_after(from);
        while self.text(at, self.source.len()).starts_with(']') {
            at = self.code_after(at + 1);
        }
        if self.text(at, self.source.len()).starts_with(['?', '!']) {
            self.blank(at, at + 1);
        }
    }

    /// The first byte after `from` that belongs neither to white space nor to a comment.
    fn code_after(&self, from: usize) -> usize {
        code_after(self.source, from)
    }

    /// Modifiers in front of a member. One that begins it becomes `;`, because the member before may have relied on it.
    /// (After `static` a `;` would make that word a member of its own.)
    fn blank_modifiers(&mut self, from: usize, to: usize) {
        let text = self.text(from, to);
        let mut at = 0;
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$') {
            if MODIFIERS.contains(&word) {
                self.blank(from + at, from + at + word.len());
                if at == 0 {
                    self.out[from] = b';';
                }
            }
            at += word.len();
            at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        }
    }

    /// Refuses `<T>{ … }` where it begins a statement or the body of an arrow function: without the type it would be a
    /// block, or a declaration, and no object.
    fn refuse_bare(&mut self, span: Span, starts: &[&str]) {
        let start = span.start as usize;
        if !self.text(start, self.source.len()).starts_with('<') {
            return;
        }
        let at = code_after(std::str::from_utf8(&self.out).unwrap_or_default(), start);
        let rest = self.out.get(at..).unwrap_or_default();
        if starts.iter().any(|word| rest.starts_with(word.as_bytes())) {
            self.refuse(
                span,
                "a type assertion is not offered here; write `as`, and parentheses around an object",
            );
        }
    }

    fn annotation_start(&self, annotation: &TSTypeAnnotation<'_>) -> usize {
        let start = annotation.span.start as usize;
        match self.source.as_bytes().get(start) {
            Some(b':') => start,
            _ => self.text(0, start).rfind(':').unwrap_or(start),
        }
    }
}

/// Whether a text holds what ends a line of JavaScript.
fn has_line_end(text: &str) -> bool {
    text.contains(LINE_ENDS)
}

/// The first byte of `text` from `at` on that belongs neither to white space nor to a comment.
fn code_after(text: &str, mut at: usize) -> usize {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        if let Some(comment) = rest.strip_prefix("/*") {
            at += comment.find("*/").map_or(rest.len(), |end| end + 4);
        } else if rest.starts_with("//") {
            at += rest.find(LINE_ENDS).unwrap_or(rest.len());
        } else {
            match rest.chars().next() {
                Some(c) if c.is_whitespace() => at += c.len_utf8(),
                _ => return at,
            }
        }
    }
}

impl<'a> Visit<'a> for Erase<'_> {
    fn visit_hashbang(&mut self, it: &Hashbang<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank(self.annotation_start(it), it.span.end as usize);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_instantiation_expression(&mut self, it: &TSInstantiationExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        let (from, to) = (it.span.start as usize, it.expression.span().start as usize);
        if has_line_end(self.text(from, to)) {
            // `return <T>\n x` would return nothing.
            self.refuse(it.span, "a type assertion over several lines is not offered; write `as`");
        }
        self.blank(from, to);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        let (start, end) = (it.span.start as usize, it.span.end as usize);
        let next = self.code_after(end);
        let comma = self.text(next, self.source.len()).starts_with(',');
        self.blank(start, if comma { next + 1 } else { end });
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        if let Some(declaration) = it.as_declaration() {
            let erased = match declaration {
                Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
                Declaration::VariableDeclaration(it) => it.declare,
                Declaration::FunctionDeclaration(it) => {
                    it.declare || it.r#type == FunctionType::TSDeclareFunction
                }
                Declaration::ClassDeclaration(it) => it.declare,
                _ => false,
            };
            if erased {
                return self.blank_statement(it.span());
            }
        }
        walk::walk_statement(self, it);
        if let Statement::ExpressionStatement(it) = it {
            self.refuse_bare(it.span, &["{", "function", "class", "async", "let"]);
        }
        if matches!(
            it,
            Statement::ExpressionStatement(_)
                | Statement::VariableDeclaration(_)
                | Statement::ReturnStatement(_)
                | Statement::ThrowStatement(_)
        ) {
            self.end_statement(it.span());
        }
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_mark(it.id.span().end as usize);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.refuse(it.span, "parameter properties are not offered, as they are more than types");
        }
        if it.optional {
            self.blank_mark(it.pattern.span().end as usize);
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        walk::walk_function(self, it, flags);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        walk::walk_arrow_function_expression(self, it);
        if it.is_expression() {
            self.refuse_bare(it.body.span(), &["{"]);
        }
        if let Some(generics) = &it.type_parameters
            && has_line_end(self.text(generics.span.start as usize, generics.span.end as usize))
        {
            self.refuse(
                generics.span,
                "type parameters of an arrow function over several lines are not offered",
            );
        }
        if let Some(annotation) = &it.return_type {
            let (start, end) = (self.annotation_start(annotation), annotation.span.end as usize);
            let close = (it.params.span.end as usize).checked_sub(1);
            let close = close.filter(|at| self.out.get(*at) == Some(&b')'));
            if has_line_end(self.text(close.unwrap_or(start), end)) {
                // No line may end between `)` and `=>`: the bracket moves to the end of the erased type.
                match (close, end.checked_sub(1)) {
                    (Some(close), Some(last)) => {
                        self.out[close] = b' ';
                        self.out[last] = b')';
                    }
                    _ => self.refuse(annotation.span, "this return type could not be erased"),
                }
            }
        }
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if it.declare {
            return self.blank_span(it.span);
        }
        if it.r#abstract {
            let body = it.body.span.start as usize;
            if let Some(at) = self.text(it.span.start as usize, body).find("abstract") {
                let at = it.span.start as usize + at;
                self.blank(at, at + "abstract".len());
            }
        }
        if let Some(first) = it.implements.first() {
            let start = first.span.start as usize;
            let heritage = it.heritage.as_ref().map(|heritage| match &heritage.type_arguments {
                Some(arguments) => arguments.span.end,
                None => heritage.expression.span().end,
            });
            let named =
                it.type_parameters.as_ref().map(|it| it.span.end).or(it.id.as_ref().map(|id| id.span.end));
            let before =
                heritage.or(named).map_or(it.span.start as usize + "class".len(), |end| end as usize);
            // A comment may hold the word, too.
            let at = self.code_after(before);
            match self.text(at, start).starts_with("implements") {
                true => self.blank(at, it.body.span.start as usize),
                false => self.refuse(first.span, "this `implements` could not be erased"),
            }
        }
        if let Some(generics) = &it.type_parameters {
            self.visit_ts_type_parameter_declaration(generics);
        }
        if let Some(heritage) = &it.heritage {
            self.visit_class_heritage(heritage);
        }
        self.visit_class_body(&it.body);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        let erased = match it {
            ClassElement::TSIndexSignature(_) => true,
            ClassElement::PropertyDefinition(it) => {
                it.declare || it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition
            }
            ClassElement::MethodDefinition(it) => {
                it.r#type == MethodDefinitionType::TSAbstractMethodDefinition
                    || it.value.r#type == FunctionType::TSEmptyBodyFunctionExpression
            }
            _ => false,
        };
        match erased {
            true => self.blank_statement(it.span()),
            false => walk::walk_class_element(self, it),
        }
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.blank_modifiers(it.span.start as usize, it.key.span().start as usize);
        if it.optional {
            self.blank_mark(it.key.span().end as usize);
        }
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.blank_modifiers(it.span.start as usize, it.key.span().start as usize);
        if it.optional || it.definite {
            self.blank_mark(it.key.span().end as usize);
        }
        walk::walk_property_definition(self, it);
        self.end_statement(it.span);
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn erased(source: &str) -> Result<String, String> {
        parse(source).map(|parsed| parsed.text).map_err(|problem| problem.message)
    }

    // Each row: TypeScript, and what it becomes. The lengths are equal, so every position stays.
    #[test]
    fn types_become_spaces() {
        for (source, expected) in [
            ("const a: number = 1;", "const a         = 1;"),
            ("let x!: T;", "let x    ;"),
            ("f<T>(x as U)", "f   (x     )"),
            ("x!.y", "x .y"),
            ("(x satisfies Y).z", "(x            ).z"),
            ("function f(this: X, a?: number): void {}", "function f(         a         )       {}"),
            ("type A = { b: 1 };\nf()", ";                 \nf()"),
            ("interface A { b(): c }\nf()", ";                     \nf()"),
            ("const f = async <T>(x: T): Promise<T> => x", "const f = async    (x   )             => x"),
            ("const f = (a): {\n  b: 1\n} => a", "const f = (a    \n      \n) => a"),
            ("x as T\n(y)", "x    ;\n(y)"),
            ("let x: T\n[1].map(f)", "let x  ;\n[1].map(f)"),
            ("class A<T> extends B<T> implements C, D { }", "class A    extends B                    { }"),
            ("class A { private readonly x?: number = 1; }", "class A { ;                x          = 1; }"),
            ("class A { a = 1\n  private ['b'] = 2 }", "class A { a = 1\n  ;       ['b'] = 2 }"),
            (
                "class A { declare x: 1; abstract y(): void; z(): void; z() {} }",
                "class A { ;             ;                   ;          z() {} }",
            ),
            ("class A { static readonly x = 1 }", "class A { static          x = 1 }"),
            ("class A { a = 1\n  private static x = 1 }", "class A { a = 1\n  ;       static x = 1 }"),
            ("class A implements /* implements */ B {}", "class A                               {}"),
            ("x = class implements B {}", "x = class              {}"),
            ("f(function (this: X /* , */ , a) {})", "f(function (                  a) {})"),
            ("(a /* ) */) /* ) */ : {\n} => a", "(a /* ) */  /* ) */    \n) => a"),
            ("(a)\n: T => a", "(a \n  ) => a"),
            ("const f = () => (<T>{ a: 1 })", "const f = () => (   { a: 1 })"),
            ("const f = () => <T>[1], g = <T>{}", "const f = () =>    [1], g =    {}"),
            ("abstract class A {}", "         class A {}"),
            ("try {} catch (e: unknown) {}", "try {} catch (e         ) {}"),
            ("for (const x of y as T[]) f(x)", "for (const x of y       ) f(x)"),
            ("<T>x", "   x"),
            ("a < b > c", "a < b > c"),
            ("declare const y: number;\nf()", ";                       \nf()"),
            ("f as any as () => void", "f                    ;"),
            ("const s = `${x as T}`", "const s = `${x     }`"),
            ("/* \u{e9} */ const a: \u{e9} = 1", "/* \u{e9} */ const a     = 1"),
        ] {
            assert_eq!(erased(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_is_more_than_a_type_is_refused() {
        for source in [
            "enum A { B }",
            "namespace A { export const b = 1 }",
            "class A { constructor(private x: number) {} }",
            "@d class A {}",
            "import x = require('y')",
            "import x from 'y'",
            "export const x = 1",
            "await import('x')",
            "return <T>\nx",
            "return <T>\u{2028}x",
            "() => <T>{ a: 1 }",
            "() => <T>/* { */ <U>{ a: 1 }.a as V",
            "<T>{ a: 1 }",
            "<T>function () {}",
            "<T>function f() {}",
            "class A { accessor x = 1 }",
        ] {
            assert!(erased(source).is_err(), "{source}");
        }
    }
}
