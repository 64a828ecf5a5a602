// For columns_walk where statistics belong to columns: an invocation knows the coefficients of its columns, and a row's
// parameters are added to them.

#import body, scalars

alias KnownOfColumns = Coefficients;
alias KnownOfRow = Params;

fn known_of_columns(batch: u32, column: u32) -> KnownOfColumns {
    var known: Coefficients;
    if recorded {
        known = coefficients_of(records_of_columns(uniforms.stats, batch, column));
    } else {
        known = given_of_columns(batch, column);
    }
    if has_means {
        known = combine(known, records_of_columns(uniforms.means, batch, column));
    }
    return known;
}

// Where no records are there, the first tile of rows leaves them for the elementwise pass.
fn leave_known_of_columns(batch: u32, column: u32, own: KnownOfColumns) {
    leave_records(batch, column, own);
}

fn known_of_row(batch: u32, row: u32) -> KnownOfRow {
    return params_of_row(number_of_row(batch, row));
}

// The coefficients of four elements of a row.
fn coefficients_at(columns: KnownOfColumns, row: KnownOfRow, batch: u32, row_start: u32, column: u32) -> Coefficients {
    return with_params_of_row(columns, row);
}

fn with_sums_of_columns(columns: KnownOfColumns, sums: Accumulator) -> KnownOfColumns {
    return with_sums(columns, sums, scalars());
}
