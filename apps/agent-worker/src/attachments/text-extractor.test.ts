import { afterAll, describe, expect, it } from "vitest";
import {
  openDocumentOf,
  paragraph,
  presentationOf,
  wordOf,
  workbookOf,
  zipOf,
} from "./documents.fixture.ts";
import type { Extraction } from "./extraction.ts";
import { asciiLine, chineseLine, encryptedPdf, expandingPdf, pdfOf } from "./pdf.fixture.ts";
import { createTextExtractor } from "./text-extractor.ts";

const word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
const sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
const slides = "application/vnd.openxmlformats-officedocument.presentationml.presentation";

// However slow the machine is: what a time ends is tested with extractors of their own.
const unhurried = { cpuMs: 600_000, deadlineMs: 600_000 };
const extractor = createTextExtractor({
  ...unhurried,
  maxChars: 20_000,
  maxBytes: 8_000_000,
  processes: 2,
});
afterAll(() => extractor.close());

async function extract(
  name: string,
  content: Uint8Array | string,
  mediaType?: string,
): Promise<Extraction> {
  const bytes = Buffer.from(content);
  return await extractor.extract(
    mediaType === undefined ? { bytes, name } : { bytes, name, mediaType },
  );
}

async function textOf(name: string, content: Uint8Array | string): Promise<string> {
  const extraction = await extract(name, content);
  expect(extraction).toMatchObject({ state: "ready" });
  return "text" in extraction ? extraction.text : "";
}

/** GBK bytes of a few characters: the platform can read the encoding but not write it. */
const gbk: Record<string, number[]> = {
  中: [0xd6, 0xd0],
  文: [0xce, 0xc4],
  报: [0xb1, 0xa8],
  告: [0xb8, 0xe6],
  镕: [0xe9, 0x46],
};

function gbkBytes(text: string): Buffer {
  return Buffer.from(
    [...text].flatMap((character) => gbk[character] ?? [...Buffer.from(character, "latin1")]),
  );
}

describe("text files", () => {
  it.each([
    ["notes.txt", "text/plain"],
    ["README.md", "text/markdown"],
    ["table.csv", "text/csv"],
    ["data.json", "application/json"],
    ["feed.xml", "application/xml"],
    ["main.ts", "text/plain"],
    ["service.log", "text/plain"],
    ["no extension", "text/plain"],
  ])("reads %s as %s", async (name, mediaType) => {
    const text = '<a>标题,"x"\n\t{"k": 1}</a>';
    expect(await extract(name, text)).toEqual({
      state: "ready",
      text,
      mediaType,
      truncated: false,
    });
  });

  it.each([
    ["UTF-8", Buffer.from("中文报告 2026")],
    ["UTF-8 with a mark", Buffer.from("\uFEFF中文报告 2026")],
    ["UTF-16LE", Buffer.from("\uFEFF中文报告 2026", "utf16le")],
    ["UTF-16BE", Buffer.from("\uFEFF中文报告 2026", "utf16le").swap16()],
    ["GB18030", gbkBytes("中文报告 2026")],
  ])("reads Chinese in %s", async (_encoding, bytes) => {
    expect(await textOf("a.txt", bytes)).toBe("中文报告 2026");
  });

  it.each([
    ["characters of GBK that GB2312 lacks", gbkBytes("中文镕报告"), "中文镕报告"],
    ["UTF-16 without a mark", Buffer.from("name,value\n", "utf16le"), "name,value"],
    [
      "western accents",
      Buffer.from("na\u00efve caf\u00e9, \u00fcber", "latin1"),
      "na\u00efve caf\u00e9, \u00fcber",
    ],
    [
      "UTF-8 with a damaged character",
      Buffer.concat([Buffer.from("中文报告".repeat(20)), Buffer.from([0xe4, 0xb8])]),
      "中文报告".repeat(20),
    ],
    [
      "a declared encoding",
      Buffer.concat([
        Buffer.from('<?xml version="1.0" encoding="Shift_JIS"?><a>'),
        Buffer.from([0x93, 0xfa, 0x96, 0x7b]),
      ]),
      '<?xml version="1.0" encoding="Shift_JIS"?><a>日本',
    ],
    [
      "lines ending in CR LF, and control characters",
      Buffer.from("a\r\nb\u0007 \u001b[31mred"),
      "a\nb [31mred",
    ],
  ])("reads %s", async (_what, bytes, text) => {
    expect(await textOf("a.txt", bytes)).toBe(text);
  });

  it("reads what a reader of a web page would see", async () => {
    const page =
      "<!doctype html><title>t</title><style>p{}</style><h1>标题</h1><p>one\n  two &amp; <b>three</b></p><ul><li>x</ul><script>alert(1)</script><table><tr><td>a<td>b</table>";
    const extraction = await extract("page", page);
    expect(extraction).toMatchObject({ state: "ready", mediaType: "text/html" });
    expect(extraction).toHaveProperty("text", "# 标题\none two & three\n- x\na | b |");
  });

  it("cuts a long text off and says so, never inside a character", async () => {
    const extraction = await extract("long.txt", `a${"𠀀".repeat(20_000)}`);
    expect(extraction).toMatchObject({ state: "ready", truncated: true });
    const text = "text" in extraction ? extraction.text : "";
    expect(text).toBe(`a${"𠀀".repeat(9_999)}`);
  });
});

describe("PDF", () => {
  it("is not what a text about PDF is taken for", async () => {
    const text = "A PDF begins with %PDF-1.7, a wave file with RIFF and WAVE.";
    expect(await textOf("a.txt", text)).toBe(text);
  });

  it("reads page by page, Chinese in a font that is not embedded included", async () => {
    const file = pdfOf(chineseLine("你好，世界") + asciiLine("Hello"), asciiLine("second"));
    expect(await extract("a.pdf", file)).toEqual({
      state: "ready",
      text: "[Page 1]\n你好，世界\nHello\n[Page 2]\nsecond",
      mediaType: "application/pdf",
      truncated: false,
      pages: 2,
    });
  });

  it("reads characters that a browser has printed as radicals", async () => {
    expect(await textOf("a.pdf", pdfOf(chineseLine("⼀⻓⽂⻔⻩")))).toBe("一长文门黄");
  });

  it.each([
    ["characters of no writing", chineseLine("\ue001\ue002\ue003 \uf8f0\ue010 \ue0aa")],
    ["hardly any letter", asciiLine("$ & ! # * ' + @ % = ".repeat(30))],
  ])("says that it is unreadable where its fonts give %s", async (_what, page) => {
    const detail = expect.stringMatching(/^What can be read of the file is noise/);
    expect(await extract("a.pdf", pdfOf(page, page, page, page))).toMatchObject({
      state: "failed",
      detail,
    });
  });

  it.each([
    ["a drawing", "+-----+\n| box |\n+-----+\n"],
    ["numbers", "1;2;3;-4.5;(6)\n".repeat(50)],
    ["picture letters", "🙂🙂🙂 ok"],
    ["characters of a rare writing", "𒀀𒀁𒀂 ꦀꦁ ༀ༁"],
  ])("does not take %s for that", async (_what, text) => {
    expect(await textOf("a.txt", text)).toBe(text.trim());
  });

  it("says of a scan that it holds no text", async () => {
    expect(await extract("scan.pdf", pdfOf("q Q"))).toMatchObject({
      state: "unsupported",
      detail: expect.stringMatching(/pictures/),
    });
  });

  it("says of a protected file that it wants a password", async () => {
    expect(await extract("a.pdf", encryptedPdf())).toMatchObject({
      state: "failed",
      detail: expect.stringMatching(/password/),
    });
  });

  it("stops in ten thousand pages when it has enough text", async () => {
    const file = pdfOf(...Array.from({ length: 10_000 }, (_, i) => asciiLine(`text of ${i}`)));
    const extraction = await extract("long.pdf", file);
    expect(extraction).toMatchObject({ state: "ready", truncated: true, pages: 10_000 });
    expect(await textOf("next.txt", "next")).toBe("next");
  });
});

describe("office documents", () => {
  it("reads headings, lists, tables and notes of a Word document, without what was deleted", async () => {
    const cell = (text: string): string => `<w:tc>${paragraph(text)}</w:tc>`;
    const body = [
      paragraph("标题", '<w:pStyle w:val="2"/>'),
      paragraph("正文 &amp; text"),
      "<w:p><w:r><w:t>a</w:t></w:r><w:r><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>",
      paragraph("item", "<w:numPr/>"),
      `<w:tbl><w:tr>${cell("x")}${cell("y")}</w:tr></w:tbl>`,
      "<mc:AlternateContent><mc:Choice><w:p><w:r><w:t>once</w:t></w:r></w:p></mc:Choice><mc:Fallback><w:p><w:r><w:t>once</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent>",
    ].join("");
    expect(await extract("报告.docx", wordOf(body))).toEqual({
      state: "ready",
      text: "# 标题\n正文 & text\na\tb\nc\n- item\nx | y |\nonce\n\n脚注一",
      mediaType: word,
      truncated: false,
    });
  });

  it("shows percentages as a reader saw them, and says which sheets are hidden", async () => {
    const file = workbookOf(
      {
        hidden:
          '<row><c r="A1" s="4"><v>0.125</v></c><c r="B1" s="5"><v>0.125</v></c><c r="C1"><v>0.125</v></c></row>',
      },
      [],
    );
    expect(await extract("a.xlsx", file)).toMatchObject({
      text: "[Sheet: hidden, hidden]\n13%\t12.5%\t0.125",
    });
  });

  it("reads an e-mail with its texts decoded, and names what is attached", async () => {
    const gb2312 = Buffer.from([0xc4, 0xe3, 0xba, 0xc3]).toString("base64"); // 你好
    const mail = [
      "From: =?gb2312?B?xOO6ww==?= <ann@example.com>",
      "Subject: =?UTF-8?Q?caf=C3=A9?=",
      'Content-Type: multipart/mixed;\r\n boundary="b1"',
      "",
      "--b1",
      "Content-Type: text/plain; charset=gb2312",
      "Content-Transfer-Encoding: base64",
      "",
      gb2312,
      "--b1",
      'Content-Type: application/pdf; name="plan.pdf"',
      "Content-Disposition: attachment",
      "",
      "AAAA",
      "--b1--",
    ].join("\r\n");
    expect(await extract("a.eml", Buffer.from(mail))).toEqual({
      state: "ready",
      text: "From: 你好 <ann@example.com>\nSubject: café\n\n你好\n\n[Attached: plan.pdf]",
      mediaType: "message/rfc822",
      truncated: false,
    });
  });

  it("calls an Outlook message by its name", async () => {
    const head = Buffer.from([0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]);
    const file = Buffer.concat([
      head,
      Buffer.alloc(504),
      Buffer.from("__substg1.0_0037001F", "utf16le"),
    ]);
    expect(await extract("a.msg", file)).toMatchObject({
      state: "unsupported",
      detail: expect.stringContaining(".msg"),
    });
  });

  it("reads the cells of a workbook, dates as dates", async () => {
    const file = workbookOf(
      {
        销售: '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1"><v>12.5</v></c></row><row r="2"><c r="A2" s="1"><v>46082</v></c><c r="B2" s="2"><v>46082</v></c><c r="C2" s="3"><v>46082.5</v></c></row>',
        二: '<row><c t="inlineStr"><is><t>in</t><t>line</t></is></c><c t="b"><v>1</v></c><c t="str"><f>A1</f><v>sum</v></c><c r="XFD1"><v>7</v></c></row>',
      },
      ["<r><t>城</t></r><r><t>市</t></r><rPh><t>pinyin</t></rPh>"],
    );
    const extraction = await extract("a.xlsx", file);
    expect(extraction).toMatchObject({ state: "ready", mediaType: sheet, pages: 2 });
    expect(extraction).toHaveProperty(
      "text",
      `[Sheet: 销售]\n城市\t\t12.5\n2026-03-01\t2026-03-01\t2026-03-01 12:00:00\n\n[Sheet: 二]\ninline\tTRUE\tsum\t${"\t".repeat(32)}7`,
    );
  });

  it("reads slides in the order in which they are shown, with their notes", async () => {
    const line = (text: string): string => `<a:p><a:r><a:t>${text}</a:t></a:r></a:p>`;
    const file = presentationOf([line("第一") + line("more"), line("second")], "备注");
    expect(await extract("a.pptx", file)).toEqual({
      state: "ready",
      text: "[Slide 1]\n第一\nmore\n\n[Notes]\n备注\n\n[Slide 2]\nsecond",
      mediaType: slides,
      truncated: false,
      pages: 2,
    });
  });

  it.each([
    [
      "text",
      '<text:h>标题</text:h><text:p>a<text:s text:c="3"/>b<office:annotation><text:p>no</text:p></office:annotation></text:p>',
      "# 标题\na   b",
    ],
    [
      "spreadsheet",
      '<table:table table:name="S"><table:table-row><table:table-cell><text:p>1</text:p></table:table-cell><table:table-cell><text:p>2</text:p></table:table-cell></table:table-row></table:table>',
      "[Table: S]\n1 \t2",
    ],
    [
      "presentation",
      "<draw:page><text:p>one</text:p></draw:page><draw:page><text:p>two</text:p></draw:page>",
      "[Slide 1]\none\n\n[Slide 2]\ntwo",
    ],
  ])("reads an OpenDocument %s", async (kind, body, text) => {
    expect(await textOf("a.odf", openDocumentOf(kind, body))).toBe(text);
  });

  it("stops in a very long document when it has enough text", async () => {
    const rows = "<row><c><v>123456789</v></c></row>".repeat(200_000);
    expect(await extract("long.xlsx", workbookOf({ 一: rows }))).toMatchObject({
      state: "ready",
      truncated: true,
    });
  });

  it.each([
    [
      "an encrypted envelope",
      Buffer.concat([
        Buffer.from("d0cf11e0a1b11ae1", "hex"),
        Buffer.alloc(600),
        Buffer.from("EncryptedPackage", "utf16le"),
      ]),
    ],
    ["encrypted parts", zipOf({ "[Content_Types].xml": "x" }, 1)],
    ["an encrypted OpenDocument", openDocumentOf("text", "x", "<manifest:encryption-data/>")],
  ])("says of %s that it wants a password", async (_what, bytes) => {
    expect(await extract("a.docx", bytes)).toMatchObject({
      state: "failed",
      detail: expect.stringMatching(/password/),
    });
  });
});

describe("files that are not what they seem", () => {
  it.each([
    ["a PDF named txt", "a.txt", pdfOf(asciiLine("Hello")), "application/pdf"],
    [
      "a workbook named docx",
      "a.docx",
      workbookOf({ 一: '<row><c t="str"><v>Hello</v></c></row>' }),
      sheet,
    ],
    ["a text named pdf", "a.pdf", Buffer.from("Hello"), "text/plain"],
    ["a web page named doc", "a.doc", Buffer.from("<html><body>Hello</body></html>"), "text/html"],
  ])("reads %s by its bytes", async (_what, ...[name, bytes, mediaType]) => {
    const extraction = await extract(name, bytes, "image/png");
    expect(extraction).toMatchObject({
      state: "ready",
      mediaType,
      text: expect.stringContaining("Hello"),
    });
  });

  it.each([
    ["a picture", "a.txt", Buffer.from("89504e470d0a1a0a0000000d", "hex"), "image/png"],
    ["a film", "a.mp4", Buffer.from("\0\0\0\x18ftypmp42"), "video/mp4"],
    ["a recording", "a.opus", Buffer.from("OggS\0\0"), "audio/ogg"],
    [
      "an old Word file",
      "a.doc",
      Buffer.concat([Buffer.from("d0cf11e0a1b11ae1", "hex"), Buffer.alloc(600)]),
      "application/x-ole-storage",
    ],
    ["rich text", "a.rtf", Buffer.from("{\\rtf1 x}"), "application/rtf"],
    ["an archive", "a.zip", zipOf({ "a.txt": "x" }), "application/zip"],
    [
      "a binary named txt",
      "a.txt",
      Buffer.from("7f".repeat(40) + "00ff80".repeat(200), "hex"),
      "application/octet-stream",
    ],
    ["a program", "a.md", Buffer.from("\x7fELF\x02\x01\x01"), "application/x-executable"],
  ])("does not read %s", async (_what, ...[name, bytes, mediaType]) => {
    expect(await extract(name, bytes)).toMatchObject({
      state: "unsupported",
      mediaType,
      detail: expect.stringMatching(/^[A-Z].*\.$/),
    });
  });

  it.each([
    ["an empty file", Buffer.alloc(0)],
    ["white space only", Buffer.from(" \n\t ")],
    ["a PDF cut off", pdfOf(asciiLine("Hello")).subarray(0, 300)],
    ["a PDF of a header only", Buffer.from("%PDF-1.7\n")],
    ["an archive cut off", wordOf(paragraph("x".repeat(5_000))).subarray(0, 900)],
    ["an archive of a header only", Buffer.from("PK\x03\x04")],
    [
      "a part longer than it claims",
      wordOf("", { "word/document.xml": { content: Buffer.alloc(100_000, 32), claimedBytes: 10 } }),
    ],
    ["a document nested too deeply", wordOf("<w:p>".repeat(5_000))],
    [
      "a document that expands without end",
      wordOf("", { "word/document.xml": Buffer.alloc(201 * 1024 * 1024, 32) }),
    ],
    ["a Word document without text", wordOf("<w:p/>", { "word/footnotes.xml": "<w:footnotes/>" })],
  ])("fails for %s with one sentence, and reads the next file", async (_what, bytes) => {
    const extraction = await extract("/home/secret/a.docx", bytes);
    expect(extraction).toMatchObject({
      state: "failed",
      detail: expect.stringMatching(/^[A-Z][^/\\\n]*\.$/),
    });
    expect(await textOf("next.txt", "next")).toBe("next");
  });

  it("expands no entities of a document and fetches none", async () => {
    const entities =
      '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]>';
    const document = `${entities}<w:document xmlns:w="w"><w:body>${paragraph("before &b; &c; after")}</w:body></w:document>`;
    expect(await textOf("a.docx", wordOf("", { "word/document.xml": document }))).toMatch(
      /^before .*after/,
    );
    expect(await textOf("a.docx", wordOf("", { "word/document.xml": document }))).not.toMatch(
      /aaaa|root:/,
    );
  });

  it("keeps a web page nested very deeply short", async () => {
    const extraction = await extract("a.html", `start${"<div>x".repeat(30_000)}`);
    expect(extraction).toMatchObject({ state: "ready", truncated: true });
  });

  it("refuses a file above its size without reading it", async () => {
    const extraction = await extract("a.txt", Buffer.alloc(8_000_001, 65));
    expect(extraction).toEqual({
      state: "too_large",
      mediaType: "text/plain",
      detail: "The file is larger than 7.6 MB.",
    });
  });

  it("answers for any bytes: parts of real files changed at random", async () => {
    const originals = [
      pdfOf(asciiLine("Hello")),
      wordOf(paragraph("Hello")),
      workbookOf({ 一: "<row><c><v>1</v></c></row>" }),
    ];
    let seed = 7;
    const random = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    for (let round = 0; round < 60; round += 1) {
      const bytes = Buffer.from(originals[round % originals.length] ?? "");
      for (let i = 0; i < 8; i += 1) bytes[random(bytes.byteLength)] = random(256);
      expect(["ready", "failed", "unsupported"]).toContain((await extract("a", bytes)).state);
    }
  });
});

describe("limits", () => {
  it("takes time in proportion to a file's size: a line of 150,000 spaces is no trap", async () => {
    const own = createTextExtractor({ cpuMs: 5_000, deadlineMs: 600_000 });
    const text = `a${" ".repeat(150_000)}b`;
    expect(await own.extract({ bytes: Buffer.from(text), name: "a.txt" })).toMatchObject({ text });
    await own.close();
  });

  it("kills a reader that needs too much memory, says so, and reads the next file", async () => {
    // Nothing but the memory ends it, however slow the machine is.
    const small = createTextExtractor({ ...unhurried, memoryMb: 250 });
    expect(await small.extract({ bytes: expandingPdf(300), name: "a.pdf" })).toEqual({
      state: "failed",
      mediaType: "application/pdf",
      detail: "Reading the file needed too much memory.",
    });
    expect(await small.extract({ bytes: Buffer.from("next"), name: "a.txt" })).toMatchObject({
      text: "next",
    });
    await small.close();
  });
});
