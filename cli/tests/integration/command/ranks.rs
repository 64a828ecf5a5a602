//! The command as one of several processes that a launcher has started.

use super::*;

#[test]
fn many_processes_are_refused() {
    let folder = folder("many");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, Draft::good().bytes()).unwrap();
    for (variable, ranks) in [("OMPI_COMM_WORLD_SIZE", "4"), ("PMI_SIZE", "2")] {
        let mut one_of_many = command(&[BATCH_NORM]);
        one_of_many.arg(&input).arg("-o").arg(&output);
        let result = one_of_many.env(variable, ranks).output().unwrap();
        let fragments = ["mpirun: expected one process", "wgpu-norm-mpi", variable];
        assert_failure(&result, &fragments, variable);
    }
    assert_eq!(names(&folder), ["in"]);
    let mut alone = command(&[BATCH_NORM]);
    alone.arg(&input).arg("-o").arg(&output);
    assert_success(&alone.env("OMPI_COMM_WORLD_SIZE", "1").output().unwrap());
}
