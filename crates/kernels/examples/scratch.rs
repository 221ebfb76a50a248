//! scratch
#![allow(clippy::print_stdout)]
use burn::tensor::{Device, Tensor};
use kernels::{Activation, CausalFrames, Convolution};
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
fn time<R>(name: &str, flops: f64, work: impl Fn() -> R) {
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        let s = cpu();
        std::hint::black_box(work());
        best = best.min(cpu() - s);
    }
    println!("{name:<45} {:8.2} ms {:8.1} GFLOP/s", best * 1e3, flops / best / 1e9);
}
fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.expect("a thread pool").install(|| {
        println!("peak {:.1}", kernels::measure_fma_peak(1) / 1e9);
        let device = Device::flex();
        let random =
            |shape| Tensor::<3>::random(shape, burn::tensor::Distribution::Default, &device);
        for (side, channels, count) in
            [(256, 96, 1), (128, 192, 2), (64, 384, 2), (32, 384, 1), (16, 384, 1)]
        {
            let frames: Vec<_> = (0..count).map(|_| random([side, side, channels])).collect();
            let earlier = vec![frames[0].clone(); 2];
            let frames = CausalFrames { earlier: &earlier, now: &frames };
            let weight: Tensor<5> =
                random([channels, channels, 27]).reshape([channels, channels, 3, 3, 3]);
            let p = count * side * side;
            time(
                &format!("3d {count}x{side}x{channels}"),
                54.0 * (channels * channels * p) as f64,
                || kernels::causal_conv3d(frames, weight.clone(), None, 1, None),
            );
            let w2: Tensor<4> = random([channels, channels, 9]).reshape([channels, channels, 3, 3]);
            time(
                &format!("conv2d {count}x{side}x{channels}"),
                18.0 * (channels * channels * side * side) as f64,
                || {
                    kernels::conv2d(
                        frames.now[0].clone().unsqueeze_dim(0),
                        w2.clone(),
                        None,
                        &Convolution::padded(1),
                        Activation::Identity,
                    )
                },
            );
            let half: Tensor<4> =
                random([channels / 2, channels, 9]).reshape([channels / 2, channels, 3, 3]);
            let enlarging = Convolution { stride: 1, padding: [1; 4], upsample: 2 };
            time(
                &format!("up {count}x{side}x{channels}"),
                36.0 * (channels * channels * p) as f64,
                || kernels::frames_conv2d(frames.now, half.clone(), None, &enlarging),
            );
        }
    });
}
