fn main() {
    napi_build::setup();
    // Node may unload an addon when the worker that loaded it ends, while threads of ours still run
    // its code.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
