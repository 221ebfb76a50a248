//! How far ranks say that they are, and what one does while it waits for another.

use std::thread::sleep;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use comm::{Parcel, Values, on_ranks};

fn parcel() -> Parcel {
    let values = Values::Floats(Tensor::from_floats([1.0, 2.0], &Device::flex()));
    Parcel { name: "x".into(), shape: vec![2], values }
}

#[test]
fn a_rank_that_waits_sees_how_far_others_are() {
    let seen = on_ranks(2, |group| {
        if group.rank() == 1 {
            for part in 1..=4 {
                sleep(Duration::from_millis(300));
                group.tell_progress(f64::from(part) / 4.0);
            }
            sleep(Duration::from_millis(300));
            group.send_parcels(0, vec![parcel()]).expect("nobody failed");
            return Vec::new();
        }
        let mut seen = Vec::new();
        let mut look = || seen.push(group.progress());
        let got = group.recv_parcels_while(1, &mut look).expect("it comes");
        assert_eq!(got.len(), 1);
        seen
    });
    let told: Vec<f64> = seen[0].iter().filter_map(|all| all[1]).collect();
    assert!(seen[0].iter().all(|all| all[0].is_none()), "{seen:?}");
    assert!(told.is_sorted() && told.len() > 3 && told.last() == Some(&1.0), "{seen:?}");
}
