//! Adapters: only they learn, they start as nothing, dropout is drawn and only in training.

use burn::tensor::Device;
use nn::{OneDevice, Schedule};
use testkit::numbers::{bits, values};
use testkit::toy::Toy;
use train::{Draws, Feed, Learns, LoraConfig, STUDENT, Trained};

use crate::run::{Numbers, Setup, error_of, fingerprint, inputs};

fn config() -> LoraConfig {
    let targets = vec!["own.qkv".to_owned()];
    LoraConfig { rank: 2, alpha: Some(6.0), from: None, dropout: 0.0, targets }
}

fn with(config: LoraConfig) -> Setup {
    Setup { learns: Learns::Adapters { config, seed: 3 }, ..Setup::default() }
}

fn predict(role: &Trained) -> Vec<u32> {
    let batch = Numbers { batch: 2, position: 0, part: (0, 1) }.next().unwrap();
    let (inputs, _) = inputs(&batch, &Draws::new(1, 1, 0, 2)).unwrap();
    bits(role.predict(&inputs).unwrap().video.as_ref().unwrap())
}

#[test]
fn only_adapters_learn_and_they_start_as_nothing() {
    let setup = with(config());
    let (before, after) = (setup.build(None).unwrap(), setup.run());
    let plain = Setup::default().build(None).unwrap();
    assert_eq!(predict(before.role(STUDENT)), predict(plain.role(STUDENT)));
    assert_ne!(predict(after.role(STUDENT)), predict(plain.role(STUDENT)));
    let names: Vec<&str> = after.role(STUDENT).learnt().map(|(name, _)| name).collect();
    let want = (0..3).flat_map(|block| {
        ["A", "B"].map(|part| format!("blocks.{block}.own.qkv.lora_{part}.weight"))
    });
    assert_eq!(names, want.collect::<Vec<_>>());
    for (name, parameter) in plain.role(STUDENT).store().iter() {
        let own = after.role(STUDENT).store().get(name).unwrap();
        assert_eq!(bits(&own.values), bits(&parameter.values), "{name} is frozen");
    }
    // A checkpoint holds adapters and nothing of the frozen network.
    let state = after.trainer.state();
    let roles = state.iter().filter(|(name, _)| name.starts_with("roles.student.")).count();
    assert_eq!(roles, 6);
}

/// How far predictions of a role are from those of its network with the adapters folded into the
/// matrices, `alpha / rank` times their product: there nothing can be dropped.
fn off_folded(role: &Trained) -> f32 {
    let mut merged = Toy::small().store();
    for (layer, [inputs, outputs]) in role.adapters().unwrap().layers() {
        let get = |name: String| values(&role.store().get(&name).unwrap().values);
        let down = get(format!("{layer}.lora_A.weight"));
        let up = get(format!("{layer}.lora_B.weight"));
        let name = format!("{layer}.weight");
        let mut weight = values(&merged.get(&name).unwrap().values);
        for row in 0..outputs {
            for column in 0..inputs {
                let product: f32 =
                    (0..2).map(|rank| up[row * 2 + rank] * down[rank * inputs + column]).sum();
                weight[row * inputs + column] += 3.0 * product;
            }
        }
        let data = burn::tensor::TensorData::new(weight, [outputs, inputs]);
        let tensor = burn::tensor::Tensor::<2>::from_data(data, &Device::flex());
        merged.insert(name, nn::Parameter::new(tensor));
    }
    let batch = Numbers { batch: 2, position: 0, part: (0, 1) }.next().unwrap();
    let (inputs, _) = inputs(&batch, &Draws::new(1, 1, 0, 2)).unwrap();
    let adapted = values(role.predict(&inputs).unwrap().video.as_ref().unwrap());
    let folded = OneDevice::default().predict(&Toy::small(), &merged, &inputs).unwrap();
    let off = values(folded.video.as_ref().unwrap())
        .into_iter()
        .zip(&adapted)
        .map(|(a, b)| (a - b).abs());
    off.fold(0.0, f32::max)
}

#[test]
fn an_adapter_is_a_change_of_its_matrix() {
    let off = off_folded(with(config()).run().role(STUDENT));
    assert!(off < 1e-5, "{off}");
}

#[test]
fn dropout_is_keyed_by_sample_and_left_out_of_predictions() {
    let dropped = LoraConfig { dropout: 0.5, ..config() };
    let run = |batch, accumulation| {
        Setup { steps: 2, batch, accumulation, ..with(dropped.clone()) }.run()
    };
    let (whole, parts, without) = (run(4, 1), run(1, 4), with(config()));
    let without = Setup { steps: 2, batch: 4, ..without }.run();
    let loss = |run: &crate::run::Run| run.reports()[1].losses["loss"];
    // Two ways to cut a step see the same masks; a run without dropout sees none.
    assert!((loss(&whole) - loss(&parts)).abs() < 1e-5 * loss(&whole));
    assert!((loss(&whole) - loss(&without)).abs() > 1e-5 * loss(&whole));
    // Predictions outside training know no dropout, of adapters that have learnt something.
    let plain = Setup::default().build(None).unwrap();
    assert_ne!(predict(whole.role(STUDENT)), predict(plain.role(STUDENT)));
    let off = off_folded(whole.role(STUDENT));
    assert!(off < 1e-5, "{off}");
}

#[test]
fn adapters_resume_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with(LoraConfig { dropout: 0.2, ..config() });
    Setup { steps: 2, ..setup.clone() }.build(Some(folder.path())).unwrap().trainer.run().unwrap();
    let mut run = setup.build(Some(folder.path())).unwrap();
    run.trainer.resume(&[], &Device::flex()).unwrap().unwrap();
    run.trainer.run().unwrap();
    assert_eq!(fingerprint(&run.trainer.state()), fingerprint(&setup.run().trainer.state()));
}

#[test]
fn a_target_that_matches_nothing_is_refused_with_the_nearest() {
    let refused = |config: LoraConfig| error_of(with(config).build(None).map(drop));
    let message = refused(LoraConfig { targets: vec!["own.qvk".to_owned()], ..config() });
    assert!(message.contains("`own.qvk` matches no layer"), "{message}");
    let message = refused(LoraConfig { targets: vec!["blocks.0.own.qvk".to_owned()], ..config() });
    assert!(message.contains("the nearest is `blocks.0.own.qkv`"), "{message}");
    assert!(refused(LoraConfig { targets: vec![], ..config() }).contains("at least one"));
    assert!(refused(LoraConfig { rank: 0, ..config() }).contains("lora.rank is 0"));
    assert!(refused(LoraConfig { dropout: 1.0, ..config() }).contains("lora.dropout is 1"));
}
