// Package mutants proves that the grader grades. Its tests put one mistake at a time into the engine, run the lab on it, and expect verify
// to fail that run at the right check and for the right reason.
package mutants
