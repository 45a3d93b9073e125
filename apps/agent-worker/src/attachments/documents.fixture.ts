import { crc32, deflateRawSync } from "node:zlib";

/** One part of an archive; the second form lies about its size. */
export type ZipPart = string | Uint8Array | { content: Uint8Array; claimedBytes: number };

function header(signature: number, fields: [bytes: 2 | 4, value: number][]): Buffer {
  const buffer = Buffer.alloc(4 + fields.reduce((sum, [bytes]) => sum + bytes, 0));
  let offset = buffer.writeUInt32LE(signature);
  for (const [bytes, value] of fields) offset = buffer.writeUIntLE(value, offset, bytes);
  return buffer;
}

/** A zip archive of these parts, deflated; `flags` 1 marks all of them as encrypted. */
export function zipOf(parts: Record<string, ZipPart>, flags = 0): Buffer {
  const files: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [path, part] of Object.entries(parts)) {
    const lying = typeof part === "object" && "content" in part;
    const content = Buffer.from(lying ? part.content : part);
    const packed = deflateRawSync(content, { level: 1 });
    const name = Buffer.from(path);
    const facts: [2 | 4, number][] = [
      [2, 20],
      [2, 0x800 | flags],
      [2, 8],
      [4, 0],
      [4, crc32(content)],
      [4, packed.byteLength],
      [4, lying ? part.claimedBytes : content.byteLength],
      [2, name.byteLength],
      [2, 0],
    ];
    const file = Buffer.concat([header(0x04034b50, facts), name, packed]);
    const place: [2 | 4, number][] = [
      [2, 0],
      [2, 0],
      [2, 0],
      [4, 0],
      [4, offset],
    ];
    directory.push(header(0x02014b50, [[2, 20], ...facts, ...place]), name);
    files.push(file);
    offset += file.byteLength;
  }
  const index = Buffer.concat(directory);
  const count = Object.keys(parts).length;
  const end: [2 | 4, number][] = [
    [2, 0],
    [2, 0],
    [2, count],
    [2, count],
    [4, index.byteLength],
    [4, offset],
    [2, 0],
  ];
  return Buffer.concat([...files, index, header(0x06054b50, end)]);
}

const declaration = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
const openXml = "http://schemas.openxmlformats.org";
const office = `${openXml}/officeDocument/2006/relationships`;

function contentTypes(path: string, type: string): string {
  return `${declaration}<Types xmlns="${openXml}/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/><Override PartName="/${path}" ContentType="application/vnd.openxmlformats-officedocument.${type}.main+xml"/></Types>`;
}

function relationships(...targets: [type: string, target: string][]): string {
  const list = targets.map(
    ([type, target], i) =>
      `<Relationship Id="rId${i + 1}" Type="${office}/${type}" Target="${target}"/>`,
  );
  return `${declaration}<Relationships xmlns="${openXml}/package/2006/relationships">${list.join("")}</Relationships>`;
}

/** A Word document with this body (`w:` elements). `parts` adds to or replaces its parts. */
export function wordOf(body: string, parts: Record<string, ZipPart> = {}): Buffer {
  return zipOf({
    "[Content_Types].xml": contentTypes("word/document.xml", "wordprocessingml.document"),
    "_rels/.rels": relationships(["officeDocument", "word/document.xml"]),
    "word/_rels/document.xml.rels": relationships(
      ["styles", "styles.xml"],
      ["footnotes", "footnotes.xml"],
    ),
    "word/styles.xml": `${declaration}<w:styles xmlns:w="w"><w:style w:type="paragraph" w:styleId="2"><w:name w:val="heading 1"/></w:style><w:style w:styleId="a"><w:name w:val="Normal"/></w:style></w:styles>`,
    "word/footnotes.xml": `${declaration}<w:footnotes xmlns:w="w"><w:footnote w:id="1"><w:p><w:r><w:t>脚注一</w:t></w:r></w:p></w:footnote></w:footnotes>`,
    "word/document.xml": `${declaration}<w:document xmlns:w="w" xmlns:mc="mc"><w:body>${body}</w:body></w:document>`,
    ...parts,
  });
}

/** A `w:p` with this text. */
export function paragraph(text: string, properties = ""): string {
  return `<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs>${properties}</w:pPr><w:r><w:t xml:space="preserve">${text}</w:t></w:r></w:p>`;
}

/** A workbook: sheet names to rows (`row` elements). */
export function workbookOf(
  sheets: Record<string, string>,
  strings: readonly string[] = [],
): Buffer {
  const names = Object.keys(sheets);
  const list = names
    .map(
      (name, i) =>
        `<sheet name="${name}" sheetId="${i + 1}"${name === "hidden" ? ' state="hidden"' : ""} r:id="rId${i + 1}"/>`,
    )
    .join("");
  const parts = Object.fromEntries(
    names.map((name, i) => [
      `xl/worksheets/sheet${i + 1}.xml`,
      `${declaration}<worksheet xmlns="x"><sheetData>${sheets[name]}</sheetData></worksheet>`,
    ]),
  );
  return zipOf({
    "[Content_Types].xml": contentTypes("xl/workbook.xml", "spreadsheetml.sheet"),
    "xl/workbook.xml": `${declaration}<workbook xmlns="x" xmlns:r="r"><workbookPr/><sheets>${list}</sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": relationships(
      ...names.map((_, i): [string, string] => ["worksheet", `worksheets/sheet${i + 1}.xml`]),
      ["sharedStrings", "/xl/sharedStrings.xml"],
      ["styles", "styles.xml"],
    ),
    "xl/sharedStrings.xml": `${declaration}<sst xmlns="x">${strings.map((text) => `<si>${text}</si>`).join("")}</sst>`,
    "xl/styles.xml": `${declaration}<styleSheet xmlns="x"><numFmts count="2"><numFmt numFmtId="171" formatCode="0.0%;[Red]-0.0%"/><numFmt numFmtId="170" formatCode="yyyy&quot;年&quot;m&quot;月&quot;d&quot;日&quot;"/></numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/><xf numFmtId="22"/><xf numFmtId="9"/><xf numFmtId="171"/></cellXfs></styleSheet>`,
    ...parts,
  });
}

/** A presentation of slides (`a:p` elements each), shown in reverse order of their file names. */
export function presentationOf(slides: readonly string[], notes: string): Buffer {
  const total = slides.length;
  const parts: Record<string, ZipPart> = {};
  for (const [i, body] of slides.entries()) {
    const file = total - i;
    parts[`ppt/slides/slide${file}.xml`] =
      `${declaration}<p:sld xmlns:p="p" xmlns:a="a"><p:txBody>${body}</p:txBody></p:sld>`;
    if (i === 0) {
      parts[`ppt/slides/_rels/slide${file}.xml.rels`] = relationships([
        "notesSlide",
        "../notesSlides/n1.xml",
      ]);
    }
  }
  const list = slides.map((_, i) => `<p:sldId id="${256 + i}" r:id="rId${total - i}"/>`).join("");
  return zipOf({
    "[Content_Types].xml": contentTypes("ppt/presentation.xml", "presentationml.presentation"),
    "ppt/presentation.xml": `${declaration}<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst>${list}</p:sldIdLst></p:presentation>`,
    "ppt/_rels/presentation.xml.rels": relationships(
      ...slides.map((_, i): [string, string] => ["slide", `slides/slide${i + 1}.xml`]),
    ),
    "ppt/notesSlides/n1.xml": `${declaration}<p:notes xmlns:p="p" xmlns:a="a"><a:p><a:r><a:t>${notes}</a:t></a:r></a:p><a:p><a:fld type="slidenum"><a:t>1</a:t></a:fld></a:p></p:notes>`,
    ...parts,
  });
}

/** An OpenDocument file of this kind (`text`, `spreadsheet`, `presentation`) with this body. */
export function openDocumentOf(kind: string, body: string, manifest = ""): Buffer {
  return zipOf({
    mimetype: `application/vnd.oasis.opendocument.${kind}`,
    "META-INF/manifest.xml": `${declaration}<manifest:manifest xmlns:manifest="m">${manifest}</manifest:manifest>`,
    "content.xml": `${declaration}<office:document-content><office:body>${body}</office:body></office:document-content>`,
  });
}
