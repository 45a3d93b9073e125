import { encode, renderUnicodeCompact } from "uqr";

const border = 2;

/** The link as a code for a terminal of this width; undefined when it does not fit. */
export function scanCodeOf(link: string, columns: number): string | undefined {
  const { size } = encode(link, { border });
  return size <= columns ? renderUnicodeCompact(link, { border }) : undefined;
}
