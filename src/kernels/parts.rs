//! The files of `shaders/parts/`. A file's opening comment says which others it needs.

macro_rules! parts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) const $name: &str = include_str!(concat!("../../shaders/parts/", $file, ".wgsl"));)*
    };
}

parts! {
    ALIGNED_ROWS = "aligned_rows";
    APPLY_RUN = "apply_run";
    AXES = "axes";
    COLUMN_SUMS = "column_sums";
    COLUMNS = "columns";
    LANES = "lanes";
    PACKETS = "packets";
    PAIRED_SUMS = "paired_sums";
    QUADS = "quads";
    RECORDS = "records";
    REDUCE_RUN = "reduce_run";
    ROW_SUM_SUBGROUP = "row_sum_subgroup";
    ROW_SUM_WORKGROUP = "row_sum_workgroup";
    ROWS = "rows";
    RUNS = "runs";
    SPLIT_ROWS = "split_rows";
    STACKED_SUM = "stacked_sum";
    TILES = "tiles";
    UNALIGNED_ROWS = "unaligned_rows";
    WORKGROUP_SUM = "workgroup_sum";
}
