//! Accumulation, recompute, clipping, skipping: what a step does and does not do.

use std::sync::Arc;

use nn::{OneDevice, Recompute};
use testkit::numbers::{bits, values};
use train::{Draws, Error, Feed, MuonConfig, OptimizerConfig, Outcome, Pass, STUDENT, SgdConfig};

use crate::run::{Clips, Fault, Numbers, Setup, error_of, fingerprint, inputs};

/// A step without momentum or clipping shows the gradient in what it changes.
fn plain() -> Setup {
    let optimizer = OptimizerConfig::Sgd(SgdConfig { momentum: 0.0, weight_decay: 0.0 });
    Setup { steps: 1, clip: None, optimizer, ..Setup::default() }
}

#[test]
fn four_micro_batches_of_one_are_one_of_four() {
    let whole = Setup { batch: 4, accumulation: 1, ..plain() }.run();
    let parts = Setup { batch: 1, accumulation: 4, ..plain() }.run();
    let norm = whole.reports()[0].roles[0].gradient_norm;
    let rate = whole.reports()[0].roles[0].rate;
    let mut square = 0.0;
    for ((name, whole), (_, parts)) in
        whole.role(STUDENT).learnt().zip(parts.role(STUDENT).learnt())
    {
        let pairs = values(&whole.values).into_iter().zip(values(&parts.values));
        let off: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
        assert!(off.is_finite(), "{name}");
        square += off;
    }
    // What was changed is the gradient times the rate.
    let distance = square.sqrt() / rate;
    assert!(distance <= 1e-6 * norm, "{distance:e} of {norm:e}");
    assert!(norm > 0.1, "there is a gradient to speak of: {norm}");
    let (whole, parts) = (&whole.reports()[0], &parts.reports()[0]);
    assert!((whole.losses["loss"] - parts.losses["loss"]).abs() < 1e-6 * whole.losses["loss"]);
    assert_eq!((whole.samples, whole.tokens), (parts.samples, parts.tokens));
    let counted: u64 = parts.buckets.iter().map(|bucket| bucket.samples).sum();
    assert_eq!(counted, 4);
}

#[test]
fn recomputing_changes_no_bit() {
    let run = |recompute| {
        let run = Setup { layout: Arc::new(OneDevice { recompute }), ..Setup::default() }.run();
        (fingerprint(&run.trainer.state()), run.numbers())
    };
    let want = run(Recompute::Never);
    for recompute in
        [Recompute::PerBlock, Recompute::Keep(1), Recompute::Keep(2), Recompute::Keep(9)]
    {
        assert_eq!(run(recompute), want, "{recompute:?}");
    }
}

#[test]
fn exactly_the_named_roles_are_clipped() {
    let clips = |clips: Clips| {
        let run = Setup { steps: 2, clip: Some(0.5), clips, ..Setup::default() }.run();
        run.reports()[1].roles.iter().map(|role| (role.role, role.clip)).collect::<Vec<_>>()
    };
    let norms = Setup { steps: 2, clip: None, ..Setup::default() }.run().reports()[1].clone();
    assert!(norms.roles.iter().all(|role| role.gradient_norm > 0.5 && role.clip == 1.0));
    let [student, critic] = clips(|_| vec![STUDENT])[..] else { panic!("two roles") };
    assert!(student.1 < 1.0 && critic.1 == 1.0);
    let [student, critic] = clips(|_| vec!["critic"])[..] else { panic!("two roles") };
    assert!(student.1 == 1.0 && critic.1 < 1.0);
    let [student, critic] = clips(|_| vec![])[..] else { panic!("two roles") };
    assert!(student.1 == 1.0 && critic.1 == 1.0);
}

/// A method may clip at some iterations only, as one does that updates its roles in turns.
#[test]
fn who_is_clipped_is_asked_for_the_iteration_at_hand() {
    let clipped = |clips: Clips| {
        let run = Setup { steps: 3, clip: Some(0.5), clips, ..Setup::default() }.run();
        run.reports().iter().map(|report| report.roles[0].clip < 1.0).collect::<Vec<_>>()
    };
    assert_eq!(clipped(|_| vec![STUDENT]), [true, true, true], "all are too large");
    assert_eq!(
        clipped(|iteration| vec![STUDENT; usize::from(iteration == 1)]),
        [true, false, false]
    );
    assert_eq!(
        clipped(|iteration| vec![STUDENT; usize::from(iteration == 3)]),
        [false, false, true]
    );
}

#[test]
fn a_clipped_gradient_has_the_largest_norm_allowed() {
    let setup = Setup { clip: Some(0.25), ..plain() };
    let before = setup.build(None).unwrap();
    let after = setup.run();
    let rate = after.reports()[0].roles[0].rate;
    let pairs = before.role(STUDENT).learnt().zip(after.role(STUDENT).learnt());
    let square: f64 = pairs
        .flat_map(|((_, a), (_, b))| {
            let pairs = values(&a.values).into_iter().zip(values(&b.values));
            pairs.map(|(a, b)| f64::from(a - b).powi(2)).collect::<Vec<_>>()
        })
        .sum();
    let moved = square.sqrt() / rate;
    assert!((moved - 0.25).abs() < 1e-4, "{moved}");
}

/// A skipped update moves neither parameters nor optimizer, schedule or average.
#[test]
fn what_is_not_finite_is_skipped_counted_and_reported() {
    for (fault, outcome) in
        [(Fault::Loss(2), Outcome::LossNotFinite), (Fault::Gradient(2), Outcome::GradientNotFinite)]
    {
        let short = Setup { steps: 1, ..Setup::default() }.run();
        let run = Setup { steps: 2, fault, ..Setup::default() }.run();
        let report = &run.reports()[1];
        let [student, critic] = &report.roles[..] else { panic!("two roles") };
        assert_eq!((student.outcome, student.skipped), (outcome, 1));
        assert_eq!((critic.outcome, critic.skipped), (Outcome::Updated, 0));
        assert_eq!(run.role(STUDENT).updates(), 1);
        let own = |run: &crate::run::Run| {
            let state = run.trainer.state();
            let mut rows = fingerprint(&state);
            let kept = [
                "roles.student",
                "optimizers.student",
                "schedulers.student.updates",
                "callbacks.ema",
            ];
            rows.retain(|(name, _)| kept.iter().any(|kept| name.starts_with(kept)));
            rows
        };
        assert_eq!(own(&run), own(&short), "{fault:?}");
        assert!(own(&run).len() > 100);
        // The next step goes on.
        let longer = Setup { steps: 3, fault, ..Setup::default() }.run();
        assert_eq!(longer.reports()[2].roles[0].outcome, Outcome::Updated);
        assert_eq!(longer.role(STUDENT).updates(), 2);
        assert_ne!(own(&longer), own(&short));
    }
}

#[test]
fn a_schedule_counts_the_updates_of_its_own_role() {
    let run = Setup::default().run();
    assert_eq!((run.role(STUDENT).updates(), run.role("critic").updates()), (4, 2));
    let rates = |role: &str| -> Vec<f64> {
        let all = run.reports().into_iter().flat_map(|report| report.roles);
        all.filter(|own| own.role == role).map(|own| own.rate).collect()
    };
    assert_eq!(rates("critic"), rates(STUDENT)[..2]);
}

#[test]
fn a_role_that_is_not_due_keeps_its_bits() {
    let [one, none] = [1, 0].map(|steps| {
        let setup = Setup { steps: steps.max(1), ..Setup::default() };
        if steps == 0 { setup.build(None).unwrap() } else { setup.run() }
    });
    for ((name, one), (_, none)) in one.role("critic").learnt().zip(none.role("critic").learnt()) {
        assert_eq!(bits(&one.values), bits(&none.values), "{name}");
    }
    assert!(one.role("critic").gradients().is_empty());
}

#[test]
fn the_average_follows_with_a_rising_decay() {
    let run = Setup { steps: 3, ..Setup::default() }.run();
    assert_eq!(run.average.updates(), 3);
    // By hand: the average of the parameters after every step.
    let name = "blocks.1.own.out.weight";
    let after = |steps: u64| {
        let run = match steps {
            0 => Setup::default().build(None).unwrap(),
            _ => Setup { steps, ..Setup::default() }.run(),
        };
        values(&run.role(STUDENT).store().get(name).unwrap().values)
    };
    let mut want = after(0);
    for (step, decay) in [(1, 1.0_f32 / 10.0), (2, 2.0 / 11.0), (3, 3.0 / 12.0)] {
        let live = after(step);
        want.iter_mut()
            .zip(live)
            .for_each(|(own, live)| *own = decay * *own + (1.0 - decay) * live);
    }
    let store = run.average.store(run.role(STUDENT));
    let got = values(&store.get(name).unwrap().values);
    assert!(want.iter().zip(&got).all(|(want, got)| (want - got).abs() < 1e-6));
    assert!(got != after(3), "the average is not the last value");
}

#[test]
fn every_optimizer_learns() {
    for optimizer in [
        OptimizerConfig::default(),
        OptimizerConfig::Muon(MuonConfig::default()),
        OptimizerConfig::Sgd(SgdConfig::default()),
    ] {
        let run =
            Setup { steps: 8, batch: 4, optimizer: optimizer.clone(), ..Setup::default() }.run();
        let losses: Vec<f64> = run.reports().iter().map(|report| report.losses["loss"]).collect();
        assert!(losses[7] < 0.9 * losses[0], "{optimizer:?}: {losses:?}");
    }
}

#[test]
fn events_come_in_order() {
    let run = Setup { steps: 2, ..Setup::default() }.run();
    let words = run.log.1.lock().unwrap().join(" ");
    let want = "Started Resting Updated Stepped Resting Updated Updated Stepped Resting Finished";
    assert_eq!(words, want);
}

#[test]
fn what_cannot_run_is_refused_before_the_first_step() {
    let refused = |setup: Setup| error_of(setup.build(None).map(drop));
    let base = Setup::default;
    assert!(refused(Setup { steps: 0, ..base() }).contains("loop.steps is 0"));
    assert!(refused(Setup { accumulation: 0, ..base() }).contains("loop.accumulation is 0"));
    assert!(refused(Setup { clip: Some(0.0), ..base() }).contains("loop.clip is 0"));
    let sgd = OptimizerConfig::Sgd(SgdConfig { momentum: 1.0, weight_decay: 0.0 });
    assert!(refused(Setup { optimizer: sgd, ..base() }).contains("optimizer.momentum is 1"));
    let only = train::Learns::Only(vec!["blocks.0.own.qvk".to_owned()]);
    let message = refused(Setup { learns: only, ..base() });
    assert!(message.contains("matches no parameter") && message.contains("own.qkv"), "{message}");
}

#[test]
fn only_what_matches_learns() {
    let only = train::Learns::Only(vec!["own.*".to_owned(), "head".to_owned(), "*own*".to_owned()]);
    let message = error_of(Setup { learns: only, ..Setup::default() }.build(None).map(drop));
    assert!(message.contains("`own.*` matches no"), "{message}");
    let learns = train::Learns::Only(vec!["head".to_owned(), "*.own.*".to_owned()]);
    let setup = Setup { steps: 1, learns, ..Setup::default() };
    let (before, after) = (setup.build(None).unwrap(), setup.run());
    let learnt: Vec<String> =
        after.role(STUDENT).learnt().map(|(name, _)| name.to_owned()).collect();
    assert!(learnt.contains(&"head.bias".to_owned()) && learnt.len() == 2 + 3 * 4, "{learnt:?}");
    for (name, parameter) in after.role(STUDENT).store().iter() {
        let old = before.role(STUDENT).store().get(name).unwrap();
        let moved = bits(&old.values) != bits(&parameter.values);
        assert_eq!(moved, learnt.contains(&name.to_owned()), "{name}");
    }
}

/// What a loss says when it fails is what the role says.
#[test]
fn a_loss_that_fails_is_handed_on_as_it_is() {
    let mut role = Setup::default().role(STUDENT).unwrap();
    let batch = Numbers { batch: 2, position: 0, part: (0, 1) }.next().unwrap();
    let draws = Draws::new(1, 1, 0, 2);
    let (inputs, _) = inputs(&batch, &draws).unwrap();
    let pass = Pass { iteration: 1, draws, share: 1.0, is_last: true };
    let mut fail = |_: &nn::Prediction| Err(Error::Feed("no more".to_owned()));
    let error = role.accumulate(&inputs, &pass, &mut fail).unwrap_err();
    assert!(matches!(&error, Error::Feed(reason) if reason == "no more"), "{error:?}");
    // An error of a model inside a loss, a judge's for instance, stays one too.
    let missing = || nn::Error::NotFinite { what: "the judge".to_owned() };
    let mut fail = |_: &nn::Prediction| Err(Error::from(missing()));
    let error = role.accumulate(&inputs, &pass, &mut fail).unwrap_err();
    assert!(matches!(error, Error::Model(nn::Error::NotFinite { .. })), "{error:?}");
    assert!(role.gradients().is_empty(), "no gradient is left of it");
}
