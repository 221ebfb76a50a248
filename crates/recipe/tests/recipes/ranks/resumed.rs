//! Runs that four ranks began and other ranks go on with, in other layouts too.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use burn::tensor::Device;
use comm::on_ranks;
use recipe::{Environment, FREE, Recipe};
use train::{Callback, Event, Method, Ranks, StepReport, Value, checkpoint};

use super::cases::{self, Law, SGD};
use super::{Ended, NAMES, bits_of, near, near_tensors, ranks_of, recipes, tensors_of, together};
use crate::building::{WAN, dataset, no_hub};

/// Remembers what steps report, and asks the run to stop after one of them.
#[derive(Clone)]
struct Log {
    reports: Arc<Mutex<Vec<StepReport>>>,
    stop: Arc<AtomicBool>,
    last: u64,
}

impl Callback for Log {
    fn name(&self) -> &str {
        "log"
    }

    fn on(&mut self, event: &Event<'_>, _: &dyn Method) -> train::Result<()> {
        if let Event::Stepped { report } = event {
            let timeless = StepReport { seconds: 0.0, ..(*report).clone() };
            self.reports.lock().unwrap().push(timeless);
            self.stop.fetch_or(report.step == self.last, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Runs a recipe from the newest checkpoint of a folder, or from the beginning, and stops after a step.
fn until(last: u64, recipe: &Recipe, folder: Option<&Path>, ranks: Ranks) -> Ended {
    let (device, hub) = (Device::flex(), no_hub());
    let log = Log { reports: Arc::default(), stop: Arc::default(), last };
    let negative = recipe.negative(&device, &hub).unwrap();
    let record = Box::new(|_: &recipe::Look<'_>| Ok(()));
    let callbacks: Vec<Box<dyn Callback>> = vec![Box::new(log.clone())];
    let watched = Box::new(engine::Silent);
    let hub = &hub;
    let environment =
        Environment { folder, device, ranks, hub, negative, callbacks, record, watched };
    let trainer = recipe.build(environment).unwrap().trainer;
    let mut trainer = trainer.stopping_at(Arc::clone(&log.stop));
    trainer.resume(&FREE, &Device::flex()).unwrap();
    trainer.run().unwrap();
    let (state, reports) = (trainer.state(), log.reports.lock().unwrap().clone());
    let (tensors, bits) = (tensors_of(&state), bits_of(&state));
    Ended { reports, gradients: Default::default(), tensors, bits }
}

/// The same on so many ranks.
fn on(last: u64, recipe: &Recipe, folder: Option<&Path>, ranks: usize) -> Ended {
    together(on_ranks(ranks, |group| until(last, recipe, folder, ranks_of(recipe, group))))
}

/// What four ranks saved after their first step goes on in other layouts within the bounds of the law, and in theirs to
/// the bit. FastVideo lost the state of an optimizer that had not made a step when it saved, like that of DMD2's student
/// before its first update: here it is complete.
#[test]
fn what_four_ranks_saved_goes_on_in_every_layout() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, true);
    let all = recipes(&data, SGD);
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut going = cases::of(Law::GoesOn).filter(|case| case.what == at).peekable();
        let Some(first) = going.peek().copied() else { continue };
        let recipe = &all[at].1;
        let want = until(5, recipe, None, Ranks::alone());
        // DMD2's student is updated at the second iteration for the first time.
        let begun = temporary.path().join(format!("begun {at}"));
        let (four, ranks) = (first.layout.of(recipe), first.layout.ranks());
        on(1, &four, Some(&begun), ranks);
        holds_all(&begun);
        let whole = on(5, &four, None, ranks);
        for case in going {
            let folder = temporary.path().join(format!("{at} {:?}", case.layout));
            copy(&begun, &folder);
            let got = on(5, &case.layout.of(recipe), Some(&folder), case.layout.ranks());
            let told = format!("{name}, gone on with on {:?}", case.layout);
            assert_eq!((got.reports.len(), want.reports.len()), (4, 5), "{told}");
            let rest = Ended { reports: want.reports[1..].to_vec(), ..want.clone() };
            near(&told, &got, &rest, 1e-5, false);
            near_tensors(&told, &got.tensors, &want.tensors);
            if case.layout.degrees == first.layout.degrees {
                assert!(got.reports == whole.reports[1..], "{told}: reports differ");
                assert!(got.bits == whole.bits, "{told}: it went on otherwise");
            }
            // What is kept at the end is what one rank keeps.
            let kept = checkpoint::find(&folder.join("checkpoints"), &Device::flex()).unwrap();
            assert_eq!(kept.manifest.step, 5, "{told}");
            assert!(bits_of(&kept.state) == got.bits, "{told}: another state is kept");
        }
    }
}

/// Whatever learns has its optimizer's state in the checkpoint, updated or not.
fn holds_all(run: &Path) {
    let found = checkpoint::find(&run.join("checkpoints"), &Device::flex()).unwrap();
    let tensors = found.state.iter().filter(|(_, value)| matches!(value, Value::Tensor(_)));
    let keys: Vec<&str> = tensors.map(|(name, _)| name).collect();
    let mut count = 0;
    for (role, name) in
        keys.iter().filter_map(|name| name.strip_prefix("roles.")?.split_once(".transformer."))
    {
        let key = format!("optimizers.{role}.{name}.momentum_buffer");
        assert!(keys.contains(&key.as_str()), "{key} is not in the checkpoint");
        count += 1;
    }
    assert!(count > 4, "{keys:?}");
}

/// Copies a folder.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
