import { deflateSync } from "node:zlib";

/** A PDF file of these objects, numbered from 1; the first is the catalogue. */
function pdfFile(objects: readonly (string | Buffer)[], trailer = ""): Buffer {
  const pieces: Buffer[] = [Buffer.from("%PDF-1.4\n")];
  const offsets: number[] = [];
  let length = 9;
  const push = (piece: Buffer): void => {
    pieces.push(piece);
    length += piece.byteLength;
  };
  for (const [i, object] of objects.entries()) {
    offsets.push(length);
    push(
      Buffer.concat([
        Buffer.from(`${i + 1} 0 obj\n`),
        Buffer.from(object),
        Buffer.from("\nendobj\n"),
      ]),
    );
  }
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  const start = length;
  const size = objects.length + 1;
  push(Buffer.from(`xref\n0 ${size}\n0000000000 65535 f \n${table}`));
  push(
    Buffer.from(
      `trailer\n<< /Size ${size} /Root 1 0 R ${trailer} >>\nstartxref\n${start}\n%%EOF\n`,
    ),
  );
  return Buffer.concat(pieces);
}

function streamOf(content: Buffer, filter = ""): Buffer {
  return Buffer.concat([
    Buffer.from(`<< /Length ${content.byteLength} ${filter} >>\nstream\n`),
    content,
    Buffer.from("\nendstream"),
  ]);
}

/** Shows a line in the Chinese font, which is not embedded: only the character maps know its text. */
export function chineseLine(text: string): string {
  return `BT /F2 12 Tf 50 700 Td <${Buffer.from(text, "utf16le").swap16().toString("hex")}> Tj ET\n`;
}

/** Shows a line of ASCII text. */
export function asciiLine(text: string): string {
  return `BT /F1 12 Tf 50 600 Td (${text}) Tj ET\n`;
}

// Objects 1 to 6: catalogue, page tree, ASCII font, Chinese font with its parts. Pages follow.
function pdfOfPages(pages: readonly (string | Buffer)[], trailer = ""): Buffer {
  const kids = pages.map((_, i) => `${7 + i * 2} 0 R`).join(" ");
  const objects: (string | Buffer)[] = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Kids [${kids}] /Count ${pages.length} >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    "<< /Type /Font /Subtype /Type0 /BaseFont /STSong-Light /Encoding /UniGB-UCS2-H /DescendantFonts [5 0 R] >>",
    "<< /Type /Font /Subtype /CIDFontType0 /BaseFont /STSong-Light /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 2 >> /FontDescriptor 6 0 R >>",
    "<< /Type /FontDescriptor /FontName /STSong-Light /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 >>",
  ];
  for (const [i, page] of pages.entries()) {
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents ${8 + i * 2} 0 R /Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> >>`,
      typeof page === "string" ? streamOf(Buffer.from(page)) : page,
    );
  }
  return pdfFile(objects, trailer);
}

/** A PDF with one page for each list of drawing operators. */
export function pdfOf(...pages: readonly string[]): Buffer {
  return pdfOfPages(pages);
}

/** A PDF that asks for a password (standard handler, revision 2). */
export function encryptedPdf(): Buffer {
  const secret = `<${"a1".repeat(32)}>`;
  return pdfOfPages(
    [asciiLine("secret")],
    `/ID [${secret} ${secret}] /Encrypt << /Filter /Standard /V 1 /R 2 /O ${secret} /U ${secret} /P -4 >>`,
  );
}

/** A small PDF whose only page expands to `megabytes` of operators that show nothing. */
export function expandingPdf(megabytes: number): Buffer {
  // Deflated twice: a filter that the format allows, and a thousand times smaller once more.
  const operators = deflateSync(Buffer.alloc(megabytes * 1024 * 1024, "q Q "), { level: 1 });
  return pdfOfPages([streamOf(deflateSync(operators), "/Filter [/FlateDecode /FlateDecode]")]);
}
