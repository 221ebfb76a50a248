//! What is shown of several ranks: one of them shows how far the slowest is.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use comm::Ranks;
use engine::{Progress, Request};
use parallel::Plan;

use crate::asked::{Nobody, models, requests};
use crate::cases::{Law, layout};

/// Keeps what it is shown, and may take long to look.
#[derive(Default)]
struct Seen {
    /// Each stage with the last step that was shown.
    stages: Vec<(String, usize, usize)>,
    slow: Duration,
}

impl Progress for Seen {
    fn begin(&mut self, stage: &str, total: usize) {
        self.stages.push((stage.to_owned(), 0, total));
    }

    fn reach(&mut self, done: usize) {
        sleep(self.slow);
        let (stage, last, total) = self.stages.last_mut().unwrap();
        assert!(done >= *last && done <= *total, "{stage}: {done} of {total} after {last}");
        *last = done;
    }

    fn interrupted(&self) -> bool {
        false
    }
}

#[test]
fn the_slowest_replica_is_shown() {
    let model = models().swap_remove(0);
    let (_, request) = requests(&model.description).swap_remove(0);
    let request = Request { steps: Some(6), ..request };
    let layout = layout(([1, 1, 1, 1, 1, 2], None, None, Law::Bits));
    let plan = Plan::new(&layout, &model.pipeline.workload(&request).unwrap()).unwrap();
    let shared = Mutex::new(model.pipeline.clone());
    let made = Ranks::new(2).run(|group| {
        let slow = Duration::from_millis(300 * group.rank() as u64);
        let mut own = shared.lock().unwrap().on(plan.mesh(group).unwrap(), &plan);
        let mut seen = Seen { slow, ..Seen::default() };
        own.run(&request, &mut seen, &mut Nobody).unwrap();
        seen.stages
    });
    let shown: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    let stage = |rank: usize, name: &str| {
        shown[rank].iter().find(|(stage, ..)| stage == name).map(|(_, done, total)| (*done, *total))
    };
    // Each makes one sample. The first is ready long before the second, and does not say so.
    let (done, total) = stage(0, "denoise").unwrap();
    assert!(done < total && total == 6, "{shown:?}");
    let (waited, all) = stage(0, "wait for other ranks").unwrap();
    assert!(waited > 0 && all == 100, "{shown:?}");
    assert_eq!(stage(1, "wait for other ranks"), None, "one rank shows it: {shown:?}");
}
