//! Names in call position, for `UnknownFunction`: `deleteFile()` and `tools.deleteFile()` where `tools` is unknown.

use oxc_ast::ast::{CallExpression, Expression};
use oxc_ast_visit::{Visit, walk};

/// Collects where each call's root name stands, and the name that the agent meant.
#[derive(Default)]
pub(super) struct Callees {
    pub(super) found: Vec<(usize, String)>,
}

impl<'a> Visit<'a> for Callees {
    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        let mut meant = None;
        let mut at = &call.callee;
        loop {
            match at {
                Expression::Identifier(name) => {
                    let meant = meant.unwrap_or(name.name.as_str());
                    self.found.push((name.span.start as usize, meant.to_owned()));
                    break;
                }
                Expression::StaticMemberExpression(member) => {
                    meant.get_or_insert(member.property.name.as_str());
                    at = &member.object;
                }
                _ => break,
            }
        }
        walk::walk_call_expression(self, call);
    }
}
