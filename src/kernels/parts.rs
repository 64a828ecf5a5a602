//! The files of `shaders/parts/`. A file's opening comment says which others it needs.

macro_rules! parts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) const $name: &str = include_str!(concat!("../../shaders/parts/", $file, ".wgsl"));)*
    };
}

parts! {
    ROWS_ALIGNED = "rows_aligned";
    PLANE_APPLY = "plane_apply";
    AXES = "axes";
    COLUMN_SUMS = "column_sums";
    CHANNELS_LAST = "channels_last";
    THREADS = "threads";
    VECTORS = "vectors";
    PAIRED_SUMS = "paired_sums";
    PLANE_EDGES = "plane_edges";
    RECORDS = "records";
    PLANE_REDUCE = "plane_reduce";
    ROW_SUM_SUBGROUP = "row_sum_subgroup";
    ROW_SUM_WORKGROUP = "row_sum_workgroup";
    ROWS = "rows";
    CHANNELS_FIRST = "channels_first";
    ROWS_SPLIT = "rows_split";
    THREAD_ROWS_SUM = "thread_rows_sum";
    TILES = "tiles";
    ROWS_MISALIGNED = "rows_misaligned";
    WORKGROUP_SUM = "workgroup_sum";
}
