//! How long what may pass is tried again.

use std::time::{Duration, Instant};

/// A file system or kernel that answers EAGAIN is asked again for a second, without spinning.
#[derive(Default)]
pub struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// False once the first answer is a second old, however many reads take turns.
    pub fn try_again(&mut self) -> bool {
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            return true;
        };
        std::thread::sleep(Duration::from_millis(1));
        since.elapsed() < Duration::from_secs(1)
    }
}
