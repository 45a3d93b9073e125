import { describe, expect, it } from "vitest";
import { toolWorld } from "./world.fixture.ts";

async function scene() {
  const world = await toolWorld();
  const { platform, ann } = world;
  const { token, sheets } = platform.work.sheets.addSpreadsheet({
    owner: ann,
    title: "Costs",
    rows: [
      ["Item", "Price"],
      ["Tea", 3],
      ["<b>Coffee</b>", 4.5],
    ],
  });
  const sheet = sheets[0];
  if (sheet === undefined) throw new Error("no sheet");
  return { ...world, token, sheet, id: sheet.sheetId };
}

describe("spreadsheets", () => {
  it("are read as data of others, by link or id, a row a line", async () => {
    const { textOf, token, id } = await scene();
    const spreadsheet = `https://acme.feishu.cn/sheets/${token}`;
    expect(await textOf("list_sheets", { spreadsheet })).toContain(
      `- Sheet1: ${id} (200 rows, 20 columns)`,
    );
    const read = await textOf("read_sheet", { spreadsheet: token, range: `${id}!A2:B9` });
    expect(read).toContain("<content-of-others from=");
    expect(read).toContain('2 ["Tea","3"]\n3 ["<b>Coffee</b>","4.5"]');
    const found = await textOf("find_in_sheet", {
      spreadsheet: token,
      range: `${id}!A1:B9`,
      text: "coffee",
    });
    expect(found).toBe("Found in 1 cells: A3");
  });

  it("say how much of them was left out", async () => {
    const { textOf, token, sheet, id } = await scene();
    sheet.rows = Array.from({ length: 30 }, (_, at) => [`${at} ${"x".repeat(1_000)}`]);
    const read = await textOf("read_sheet", { spreadsheet: token, range: `${id}!A1:A30` });
    expect(read).toContain("rows are left out: read on from row 20]");
    expect(read.length).toBeLessThan(21_000);
  });

  it("are changed cell by cell, texts as texts, with the old values in the answer", async () => {
    const { textOf, call, token, sheet, id } = await scene();
    const answer = await textOf("write_sheet", {
      spreadsheet: token,
      range: `${id}!A2:B3`,
      old_rows: [
        ["Tea", "3"],
        ["<b>Coffee</b>", "4.5"],
      ],
      rows: [
        ["=SUM(A1)", 5],
        [null, true],
      ],
    });
    expect(answer).toContain('2 ["Tea","3"]');
    expect(sheet.rows).toEqual([
      ["Item", "Price"],
      ["=SUM(A1)", 5],
      [null, true],
    ]);
    const head = { spreadsheet: token, range: `${id}!A1:B1` };
    const stale = { ...head, old_rows: [["Item", "Cost"]], rows: [["Item", "x"]] };
    expect(JSON.stringify(await call("write_sheet", stale))).toContain("say something else");
    const wrong = { ...head, old_rows: [["Item", "Price"]], rows: [["x"]] };
    expect(JSON.stringify(await call("write_sheet", wrong))).toContain("1 rows of 2 cells");
    expect(sheet.rows[0]).toEqual(["Item", "Price"]);
  });

  it("get rows behind the last one, and twice the same where that is wanted twice", async () => {
    const { textOf, token, sheet, id } = await scene();
    const rows = { spreadsheet: token, sheet: id, rows: [["Milk", 1]] };
    expect(await textOf("append_rows", rows)).toContain(`${id}!A4:B4`);
    await textOf("append_rows", rows);
    expect(sheet.rows.slice(3)).toEqual([
      ["Milk", 1],
      ["Milk", 1],
    ]);
  });

  it("stay closed to others, although the refusal comes with HTTP 200", async () => {
    const { platform, call, bob, token, id } = await scene();
    const read = { spreadsheet: token, range: `${id}!A1:B2` };
    expect(await call("read_sheet", read, { person: bob })).toMatchObject({
      ok: false,
      error: expect.stringContaining("its owner can share it. (code 1310213)") as string,
    });
    expect(platform.apiCalls.at(-1)).toMatchObject({ status: 200, code: 1310213 });
    platform.work.share(token, bob, "view");
    expect(await call("read_sheet", read, { person: bob })).toMatchObject({ ok: true });
    const write = { ...read, range: `${id}!A1`, old_rows: [["Item"]], rows: [["x"]] };
    expect(await call("write_sheet", write, { person: bob })).toMatchObject({ ok: false });
  });

  it("take ranges and ids only", async () => {
    const { platform, call, token, id } = await scene();
    const before = platform.apiCalls.length;
    for (const range of ["A1:B2", `${id}!a1`, `${id}!A0`, `${id}!A1/../x`, "../x!A1"]) {
      expect(await call("read_sheet", { spreadsheet: token, range })).toMatchObject({ ok: false });
    }
    expect(platform.apiCalls.length).toBe(before);
  });
});
