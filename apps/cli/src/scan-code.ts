import { encode, renderUnicodeCompact } from "uqr";

// As narrow as scanners take: the link of a registration then fits into 80 columns.
const border = 1;

/** The link as a code for a terminal of this width; undefined when it does not fit. */
export function scanCodeOf(link: string, columns: number): string | undefined {
  const { size } = encode(link, { border });
  return size <= columns ? renderUnicodeCompact(link, { border }) : undefined;
}
