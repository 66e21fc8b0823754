//! Rust source with comments and literals taken out, so that a check sees only code.

/// `source` with each character of a comment, string or character literal replaced by a space; lines stay.
pub(crate) fn only(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    // The character before `rest`: an `r` or `b` that ends a longer name starts no literal.
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let length = if before.is_alphanumeric() || before == '_' { None } else { raw_string(rest) }
            .or_else(|| comment(rest))
            .or_else(|| string(rest))
            .or_else(|| character(rest));
        let taken = &rest[..length.unwrap_or(first.len_utf8())];
        match length {
            Some(_) => out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
            None => out.push(first),
        }
        before = first;
        rest = &rest[taken.len()..];
    }
    out
}

fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let bytes = &text.as_bytes()[at..];
        if bytes.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    Some(text.len())
}

/// `r"…"`, `r#"…"#`, `br"…"`, `cr"…"`. (A raw name such as `r#type` has no quote after the marks.)
fn raw_string(text: &str) -> Option<usize> {
    let body = text.strip_prefix('b').or_else(|| text.strip_prefix('c')).unwrap_or(text).strip_prefix('r')?;
    let marks = body.len() - body.trim_start_matches('#').len();
    let content = body[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let start = text.len() - content.len();
    Some(content.find(&end).map_or(text.len(), |at| start + at + end.len()))
}

fn string(text: &str) -> Option<usize> {
    let content = text.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in content.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 2),
            _ => {}
        }
    }
    Some(text.len())
}

/// `'x'` or `'\…'`; a lifetime has no closing quote there.
fn character(text: &str) -> Option<usize> {
    let content = text.strip_prefix('\'')?;
    let first = content.chars().next()?;
    if first == '\\' {
        // The character after the backslash may itself be a quote.
        let escaped = content[1..].chars().next()?.len_utf8();
        return content[1 + escaped..].find('\'').map(|at| at + escaped + 3);
    }
    content[first.len_utf8()..].starts_with('\'').then(|| first.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::only;

    #[test]
    fn takes_out_comments_and_literals() {
        let table = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x // \" y") g"#, "f(           ) g"),
            (r##"f(r#"x " y"#) g"##, "f(          ) g"),
            (r#"f(br"\") g"#, "f(     ) g"),
            ("r#type x", "r#type x"),
            (r"c == '\'' || d", "c ==      || d"),
            (r"c == '\u{7f}' x", "c ==          x"),
            ("c == '\"' x", "c ==     x"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("user\"x\" y", "user    y"),
            ("\"two\nlines\" y", "    \n       y"),
        ];
        for (source, expected) in table {
            assert_eq!(only(source), expected, "{source}");
        }
    }
}
