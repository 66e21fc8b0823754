//! How many refused decisions each subject sent in the current minute (design 4, Flood).

use std::collections::HashMap;
use std::time::Duration;

use crate::ids::Subject;

const WINDOW: Duration = Duration::from_secs(60);

/// A counter with a fixed window for each subject.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    windows: HashMap<Subject, Window>,
    /// When windows that are over are next thrown away, so that the map does not outgrow one minute's subjects.
    sweep_at: Duration,
}

#[derive(Debug)]
struct Window {
    opened: Duration,
    count: u32,
}

impl Refusals {
    /// Counts one refusal; false if the subject has used up its minute.
    pub(super) fn admit(&mut self, now: Duration, subject: &Subject, limit: u32) -> bool {
        if now >= self.sweep_at {
            self.windows.retain(|_, window| now.saturating_sub(window.opened) < WINDOW);
            self.sweep_at = now.saturating_add(WINDOW);
        }
        if !self.windows.contains_key(subject) {
            self.windows.insert(subject.clone(), Window { opened: now, count: 0 });
        }
        let Some(window) = self.windows.get_mut(subject) else { return false };
        if now.saturating_sub(window.opened) >= WINDOW {
            *window = Window { opened: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        window.count <= limit
    }
}
