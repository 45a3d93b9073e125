import { describe, expect, it } from "vitest";
import { type ToolWorld, toolWorld } from "../world.fixture.ts";

/** A Base of Ann's with one table of tasks. */
async function tableWorld(options: Parameters<typeof toolWorld>[0] = {}) {
  const world = await toolWorld(options);
  const { tables } = world.platform.work;
  const { appToken } = tables.addBase({ owner: world.ann, name: "Launch" });
  const table = tables.addTable(appToken, {
    name: "Tasks",
    fields: [
      { name: "Task", type: 1 },
      { name: "Days", type: 2 },
      { name: "Due", type: 5 },
      { name: "Who", type: 11 },
      { name: "State", type: 3, property: { options: [{ name: "open" }, { name: "done" }] } },
    ],
  });
  const base = `https://acme.feishu.cn/base/${appToken}?table=${table.tableId}`;
  return { ...world, base, appToken, table };
}

function added({ platform }: ToolWorld): unknown[] {
  return platform.work.changes
    .filter(({ kind }) => kind === "base.record")
    .map(({ content }) => JSON.parse(content) as unknown);
}

describe("tables of a Base", () => {
  it("are described, filled, searched, changed and emptied", async () => {
    const { base, table, ann, textOf, call } = await tableWorld();
    const schema = await textOf("list_tables", { base });
    expect(schema).toContain(`Tasks: table ${table.tableId}`);
    expect(schema).toContain('"State" (select: open | done)');
    const rows = [
      { Task: "Write", Days: "2", Due: "2026-12-24", Who: [ann], State: "open" },
      { Task: "Ship", Days: 1 },
    ];
    await textOf("add_records", { base, rows });
    expect(table.records[0]?.fields).toEqual({
      Task: "Write",
      Days: 2,
      Due: Date.UTC(2026, 11, 24),
      Who: [{ id: ann }],
      State: "open",
    });
    const conditions = [{ field: "Days", operator: "isGreater", value: "1" }];
    const found = await textOf("search_records", { base, conditions });
    const record = table.records[0]?.record_id ?? "";
    expect(found).toContain(`${record} {"Task":"Write","Days":2,"Due":"2026-12-24T00:00:00.000Z"`);
    expect(found).not.toContain("Ship");
    const change = {
      old_values: { State: "open", Days: 2 },
      values: { State: "done", Days: null },
    };
    const stale = { record, ...change, old_values: { State: "open", Days: 5 } };
    expect(await call("update_records", { base, changes: [stale] })).toMatchObject({
      ok: false,
      error: expect.stringContaining(`"Days" of the record ${record} is 2`),
    });
    const changed = await textOf("update_records", {
      base,
      changes: [{ record, ...change }],
    });
    expect(changed).toContain('{"Days":2,"State":"open"}');
    expect(table.records[0]?.fields).toMatchObject({ Task: "Write", State: "done", Days: null });
    // A repeat of the call finds its own values.
    await textOf("update_records", { base, changes: [{ record, ...change }] });
    expect(
      await call("delete_records", { base, records: [{ id: record, first_column: "Ship" }] }),
    ).toMatchObject({
      ok: false,
      error: expect.stringContaining('says "Write"'),
    });
    await textOf("delete_records", { base, records: [{ id: record, first_column: "Write" }] });
    expect(table.records.map(({ fields }) => fields["Task"])).toEqual(["Ship"]);
    expect(
      await textOf("delete_records", { base, records: [{ id: record, first_column: "Write" }] }),
    ).toContain("not there");
  });

  it("name their fields when a value does not fit, before anything is written", async () => {
    const world = await tableWorld();
    const tryRow = async (row: object) =>
      await world.call("add_records", { base: world.base, rows: [row] });
    expect(await tryRow({ Owner: "Ann" })).toMatchObject({
      error: expect.stringContaining('The table has: "Task" (text'),
    });
    expect(await tryRow({ Due: "soon" })).toMatchObject({
      error: expect.stringContaining("takes a date such as"),
    });
    expect(await tryRow({ Who: ["Ann"] })).toMatchObject({
      error: expect.stringContaining("takes open ids"),
    });
    expect(added(world)).toEqual([]);
  });

  it("are seen by those who may: others get a reason, roles an empty answer that says so", async () => {
    const world = await tableWorld();
    await world.textOf("add_records", { base: world.base, rows: [{ Task: "Write" }] });
    expect(
      await world.call("list_tables", { base: world.base }, { person: world.bob }),
    ).toMatchObject({
      ok: false,
      error: expect.stringContaining("may not do this with the Base"),
    });
    world.platform.work.share(world.appToken, world.bob, "view");
    world.platform.work.tables.hideRecords(world.appToken, world.bob);
    expect(
      await world.textOf("search_records", { base: world.base }, { person: world.bob }),
    ).toContain("may not see them");
  });

  it("get a new field once", async () => {
    const world = await tableWorld();
    world.platform.faults.add({
      match: { method: "POST", path: /fields$/ },
      times: 2,
      action: { kind: "lose_response" },
    });
    const field = { base: world.base, name: "Size", type: "select", options: ["S", "L"] };
    await world.textOf("add_field", field);
    expect(world.table.fields.filter(({ field_name }) => field_name === "Size")).toHaveLength(1);
    expect(await world.call("add_field", field)).toMatchObject({
      error: expect.stringContaining("already"),
    });
  });
});

describe("fields of a table", () => {
  it("are renamed with their choices, and rows keep what they say", async () => {
    const world = await tableWorld();
    const { base, table, textOf, call } = world;
    await textOf("add_records", { base, rows: [{ Task: "Write", State: "open" }] });
    const changed = await textOf("change_field", {
      base,
      field: "State",
      name: "Status",
      rename_choices: [{ from: "open", to: "todo" }],
      add_choices: ["late"],
    });
    expect(changed).toBe('The field is called "Status" now, with the choices todo | done | late.');
    expect(table.records[0]?.fields).toEqual({ Task: "Write", Status: "todo" });
    await textOf("change_field", { base, field: "Status", name: "State" });
    expect(await textOf("list_tables", { base })).toContain('"State" (select: todo | done | late)');
    const tries: [object, string][] = [
      [{ field: "Nothing", name: "x" }, 'There is no field \\"Nothing\\". The table has: \\"Task'],
      [{ field: "State", name: "Days" }, 'has a field \\"Days\\" already'],
      [{ field: "State", add_choices: ["done"] }, 'the choice \\"done\\" twice'],
      [{ field: "State", rename_choices: [{ from: "x", to: "y" }] }, "todo | done | late"],
      [{ field: "Days", add_choices: ["x"] }, "has no choices"],
    ];
    for (const [change, says] of tries) {
      const outcome = await call("change_field", { base, ...change });
      expect(JSON.stringify(outcome)).toContain(says);
    }
    expect(
      world.platform.work.changes.filter(({ kind }) => kind === "base.field_change"),
    ).toHaveLength(2);
  });

  it("are deleted only when the person saw how many rows lose a value", async () => {
    const { base, table, textOf, call, platform } = await tableWorld();
    await textOf("add_records", { base, rows: [{ Task: "Write", Days: 1 }, { Task: "Ship" }] });
    const conditions = [{ field: "Days", operator: "isNotEmpty" }];
    expect(await textOf("search_records", { base, conditions })).toContain("1 records in all");
    expect(await call("delete_field", { base, field: "Days", filled_rows: 0 })).toMatchObject({
      ok: false,
      error: 'Nothing was deleted: 1 rows have a value in "Days", not 0.',
    });
    await textOf("delete_field", { base, field: "Days", filled_rows: 1 });
    expect(table.records.map(({ fields }) => fields)).toEqual([
      { Task: "Write" },
      { Task: "Ship" },
    ]);
    expect(await call("delete_field", { base, field: "Task", filled_rows: 2 })).toMatchObject({
      ok: false,
      error: "The first column of a table cannot be deleted. (code 1254046)",
    });
    expect(platform.work.changes.filter(({ kind }) => kind === "base.field_delete")).toHaveLength(
      1,
    );
  });
});

describe("rows whose answer is lost", () => {
  const cases = (["lose_response", "drop"] as const).flatMap((kind) =>
    (["same_result", "conflict"] as const).map((repeated) => ({ kind, repeated })),
  );

  it.each(cases)("are there once ($kind, $repeated)", async ({ kind, repeated }) => {
    const world = await tableWorld();
    world.platform.work.setRepeatedKey(repeated);
    const rows = [{ Task: "Write" }, { Task: "Ship" }];
    await world.textOf("add_records", { base: world.base, rows });
    world.platform.faults.add({ match: { path: /batch_create$/ }, times: 2, action: { kind } });
    await world.textOf("add_records", { base: world.base, rows });
    expect(added(world)).toEqual([...rows, ...rows]);
  });

  it("are there once although no condition can find them", async () => {
    const world = await tableWorld();
    world.platform.work.setRepeatedKey("conflict");
    world.platform.faults.add({
      match: { path: /batch_create$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    await world.textOf("add_records", { base: world.base, rows: [{ Who: [world.ann] }] });
    expect(added(world)).toEqual([{ Who: [{ id: world.ann }] }]);
  });

  it("changes and deletions end in the same state", async () => {
    const world = await tableWorld();
    const { base, table } = world;
    await world.textOf("add_records", { base, rows: [{ Task: "Write" }, { Task: "Ship" }] });
    const [write, ship] = table.records.map(({ record_id }) => record_id);
    world.platform.faults.add({
      match: { path: /batch_update$/ },
      times: 2,
      action: { kind: "lose_response" },
    });
    await world.textOf("update_records", {
      base,
      changes: [{ record: write, old_values: { Days: null }, values: { Days: 3 } }],
    });
    world.platform.faults.add({
      match: { path: /batch_delete$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    await world.textOf("delete_records", { base, records: [{ id: ship, first_column: "Ship" }] });
    expect(table.records.map(({ fields }) => fields)).toEqual([{ Task: "Write", Days: 3 }]);
  });

  it("wait for the table's lock, one writer at a time", async () => {
    const world = await tableWorld();
    world.platform.work.tables.lockTable(world.table.tableId, 2);
    const one = async (Task: string, person: string) =>
      await world.textOf("add_records", { base: world.base, rows: [{ Task }] }, { person });
    world.platform.work.share(world.appToken, world.bob, "edit");
    await Promise.all([one("a1", world.ann), one("a2", world.ann), one("b1", world.bob)]);
    expect(added(world)).toHaveLength(3);
    const refused = world.platform.apiCalls.filter(({ code }) => code === 1254291);
    expect(refused).toHaveLength(2);
    expect(refused.every(({ status }) => status === 200)).toBe(true);
  });
});
