//! A LoRA means the same weights wherever it is merged: in validation, in an exported folder, in
//! `generate --lora`; whatever type the base is stored in.

use std::path::Path;

use burn::tensor::{DType, Device};
use nn::{Merge, Precision, Store};
use recipe::{Dialect, Student, Which};
use safetensors::tensor::{Dtype, TensorView};
use train::STUDENT;

use crate::building::{WAN, build, dataset, folder, no_hub, read, small};

const FILE: &str = "transformer/diffusion_pytorch_model.safetensors";

/// A copy of the tiny Wan folder whose transformer is stored in bf16.
pub(crate) fn half(to: &Path) {
    let from = folder("wan-tiny");
    copy(Path::new(&from), to);
    let store = open(&Path::new(&from).join(FILE));
    let half: Vec<_> = store
        .iter()
        .map(|(name, own)| {
            let data = own.values.clone().cast(DType::BF16).to_data();
            (name, own.shape.clone(), data)
        })
        .collect();
    let views = half.iter().map(|(name, shape, data)| {
        (*name, TensorView::new(Dtype::BF16, shape.clone(), data.bytes()).unwrap())
    });
    safetensors::serialize_to_file(views, None, &to.join(FILE)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn open(path: &Path) -> Store {
    Store::open(&[path.to_owned()], Precision::Stored, &Device::flex()).unwrap()
}

/// Names, types and bits.
fn content(store: &Store) -> Vec<(String, DType, Vec<u8>)> {
    let content = store.iter().map(|(name, own)| {
        let data = own.values.to_data();
        (name.to_owned(), own.values.dtype(), data.bytes().to_vec())
    });
    content.collect()
}

#[test]
fn a_lora_is_the_same_weights_wherever_it_is_merged() {
    for dtype in [DType::F32, DType::BF16] {
        let temporary = tempfile::tempdir().unwrap();
        let [data, base, run] = ["data", "base", "run"].map(|name| temporary.path().join(name));
        dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
        match dtype {
            DType::BF16 => half(&base),
            _ => copy(Path::new(&folder("wan-tiny")), &base),
        }
        let mut overrides = small("wan-tiny", &data, &[STUDENT]);
        overrides.push(format!("models.student.from={}", base.display()));
        // A strength that no power of two makes exact.
        overrides.push("models.student.learns.alpha=7".to_owned());
        overrides.push("models.student.rate.peak=0.05".to_owned());
        let mut built = build(&read("wan-lora.yaml", &overrides), Some(&run)).unwrap();
        built.trainer.run().unwrap();
        // What validation looks at.
        let live = built.trainer.method().role(STUDENT).unwrap().merged(None).unwrap();
        let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
        let exported = temporary.path().join("exported");
        student.write_folder(&exported).unwrap();
        let want = content(&open(&exported.join(FILE)));
        assert!(want.iter().all(|(_, own, _)| *own == dtype), "the base's type is kept");
        assert_ne!(want, content(&open(&base.join(FILE))), "something was learnt");
        assert_eq!(content(&live), want, "validation and the folder");
        for (dialect, name) in [(Dialect::Diffusers, "a"), (Dialect::ComfyUi, "b")] {
            let path = temporary.path().join(format!("{name}.safetensors"));
            student.write_lora(&path, dialect).unwrap();
            let mut store = open(&base.join(FILE));
            let source = folder::lora::LoraSource { path, scale: 1.0 };
            let names = families::family("wan").unwrap().lora_names();
            folder::lora::load(&[source], &mut store, names, Merge::Into, &Device::flex()).unwrap();
            assert_eq!(content(&store), want, "{dialect:?} and the folder");
        }
    }
}
