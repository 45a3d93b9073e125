import type { InboundMessage } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import {
  createBudgetCalendar,
  isTimeZone,
  localMinute,
  createBudgetBook,
  spenderOf,
  type Spender,
  type Budget,
  budgetStanding,
  budgetUse,
} from "./budgets.ts";

const at = (iso: string): number => Date.parse(iso);

/** Day and month of a moment, and when each of them ends. */
function periodsAt(timeZone: string, iso: string): string[] {
  const calendar = createBudgetCalendar(timeZone);
  const spans = [calendar("day", at(iso)), calendar("month", at(iso))];
  return [
    ...spans.map(({ bucket }) => bucket),
    ...spans.map(({ endsAtMs }) => new Date(endsAtMs).toISOString().slice(0, 16)),
  ];
}

describe("days and months", () => {
  it.each([
    [
      "Asia/Shanghai",
      "2026-11-21T15:59:59.999Z",
      "2026-11-21",
      "2026-11",
      "2026-11-21T16:00",
      "2026-11-30T16:00",
    ],
    [
      "Asia/Shanghai",
      "2026-11-21T16:00:00.000Z",
      "2026-11-22",
      "2026-11",
      "2026-11-22T16:00",
      "2026-11-30T16:00",
    ],
    [
      "Asia/Shanghai",
      "2026-11-30T15:59:59.999Z",
      "2026-11-30",
      "2026-11",
      "2026-11-30T16:00",
      "2026-11-30T16:00",
    ],
    [
      "Asia/Shanghai",
      "2026-11-30T16:00:00.000Z",
      "2026-12-01",
      "2026-12",
      "2026-12-01T16:00",
      "2026-12-31T16:00",
    ],
    [
      "Asia/Shanghai",
      "2026-12-31T16:00:00.000Z",
      "2027-01-01",
      "2027-01",
      "2027-01-01T16:00",
      "2027-01-31T16:00",
    ],
    [
      "UTC",
      "2028-02-28T23:59:59.999Z",
      "2028-02-28",
      "2028-02",
      "2028-02-29T00:00",
      "2028-03-01T00:00",
    ],
    [
      "UTC",
      "2026-01-01T00:00:00.000Z",
      "2026-01-01",
      "2026-01",
      "2026-01-02T00:00",
      "2026-02-01T00:00",
    ],
    // Days of 23 and of 25 hours, and one that begins at 01:00.
    [
      "Europe/Berlin",
      "2026-03-29T00:30:00.000Z",
      "2026-03-29",
      "2026-03",
      "2026-03-29T22:00",
      "2026-03-31T22:00",
    ],
    [
      "Europe/Berlin",
      "2026-10-24T22:00:00.000Z",
      "2026-10-25",
      "2026-10",
      "2026-10-25T23:00",
      "2026-10-31T23:00",
    ],
    [
      "Africa/Cairo",
      "2026-04-23T21:59:59.999Z",
      "2026-04-23",
      "2026-04",
      "2026-04-23T22:00",
      "2026-04-30T21:00",
    ],
    [
      "Pacific/Kiritimati",
      "2026-06-30T10:00:00.000Z",
      "2026-07-01",
      "2026-07",
      "2026-07-01T10:00",
      "2026-07-31T10:00",
    ],
  ] as const)("in %s at %s", (...[timeZone, iso, ...expected]) => {
    expect(periodsAt(timeZone, iso)).toEqual(expected);
  });

  it("follow each other without a gap through two years of any zone", () => {
    for (const timeZone of [
      "Asia/Shanghai",
      "America/New_York",
      "Australia/Lord_Howe",
      "Asia/Kathmandu",
    ]) {
      const calendar = createBudgetCalendar(timeZone);
      const seen = new Set<string>();
      let nowMs = at("2026-01-01T12:00:00Z");
      for (let day = 0; day < 730; day += 1) {
        const { bucket, endsAtMs } = calendar("day", nowMs);
        expect(seen.has(bucket)).toBe(false);
        seen.add(bucket);
        expect(calendar("day", endsAtMs - 1).bucket).toBe(bucket);
        nowMs = endsAtMs;
      }
    }
  });

  it("are named also for a clock that goes back over midnight", () => {
    const calendar = createBudgetCalendar("UTC");
    expect(calendar("day", at("2026-11-22T00:00:00Z")).bucket).toBe("2026-11-22");
    expect(calendar("day", at("2026-11-21T23:59:59Z")).bucket).toBe("2026-11-21");
  });

  it("are those of zones that exist", () => {
    expect([isTimeZone("Asia/Shanghai"), isTimeZone("Mars/Olympus"), isTimeZone("")]).toEqual([
      true,
      false,
      false,
    ]);
    expect(localMinute("Asia/Shanghai", at("2026-11-22T16:00:00Z"))).toBe("2026-11-23 00:00");
  });
});

const spender: Spender = { person: "ou_ann", chat: "oc_1", agent: "default", tenant: "t_1" };
const nowMs = at("2026-11-22T04:00:00Z");

function accounts(budgets: Budget[], of: Spender = spender) {
  return createBudgetBook({ timeZone: "Asia/Shanghai", budgets }).accountsOf(of, nowMs);
}

describe("accounts", () => {
  it("are those of every kind and period that the spender has a budget for", () => {
    const found = accounts([
      { per: "deployment", period: "month", usd: 1_000 },
      { per: "person", period: "day", tokens: 100 },
      { per: "agent", of: ["other"], period: "day", tokens: 5 },
    ]);
    const day = { bucket: "2026-11-22", endsAtMs: at("2026-11-22T16:00:00Z") };
    expect(found).toEqual([
      { per: "person", id: "ou_ann", period: "day", tokens: 100, ...day },
      {
        per: "deployment",
        id: "all",
        period: "month",
        usd: 1_000,
        bucket: "2026-11",
        endsAtMs: at("2026-11-30T16:00:00Z"),
      },
    ]);
  });

  it("a budget that names the spender replaces the general one, for its own period alone", () => {
    const budgets: Budget[] = [
      { per: "person", period: "day", tokens: 100, usd: 1 },
      { per: "person", period: "month", tokens: 1_000 },
      { per: "person", of: ["ou_ann", "ou_bob"], period: "day", tokens: 900 },
      { per: "person", of: ["ou_cai"], period: "day" },
    ];
    const limits = (person: string) =>
      accounts(budgets, { ...spender, person }).map(({ period, tokens, usd }) => [
        period,
        tokens,
        usd,
      ]);
    expect(limits("ou_ann")).toEqual([
      ["day", 900, undefined],
      ["month", 1_000, undefined],
    ]);
    expect(limits("ou_cai")).toEqual([
      ["day", undefined, undefined],
      ["month", 1_000, undefined],
    ]);
    expect(limits("ou_dan")[0]).toEqual(["day", 100, 1]);
  });

  it("there are none without budgets", () => {
    const book = createBudgetBook({ timeZone: "UTC", budgets: [] });
    expect([book.isEmpty, book.accountsOf(spender, nowMs), book.groups(nowMs)]).toEqual([
      true,
      [],
      [],
    ]);
  });

  it("a message over HTTP draws on its session in place of a chat, and on its app in place of a tenant", () => {
    const message: InboundMessage = {
      v: 1,
      session: "api.s1",
      id: "1",
      app: "api",
      sender: { id: "api" },
      chatType: "api",
      parts: [{ type: "text", text: "hi" }],
      createdAtMs: 1,
      reply: { channel: "none" },
    };
    expect(spenderOf(message, "default")).toEqual({
      person: "api",
      chat: "api.s1",
      agent: "default",
      tenant: "api",
    });
    const reply = {
      channel: "feishu",
      app: "cli_1",
      chatId: "oc_1",
      messageId: "om_1",
      inThread: false,
    } as const;
    expect(spenderOf({ ...message, reply, tenant: "t_1" }, "ops")).toMatchObject({
      chat: "oc_1",
      tenant: "t_1",
      agent: "ops",
    });
  });
});

describe("standing", () => {
  const [day, month] = accounts([
    { per: "person", period: "day", tokens: 100, usd: 1 },
    { per: "person", period: "month", tokens: 1_000 },
  ]);
  if (day === undefined || month === undefined) throw new Error("two accounts");
  const standing = (ofDay: [number, number], ofMonth: number) =>
    budgetStanding([
      budgetUse(day, { tokens: ofDay[0], usd: ofDay[1] }),
      budgetUse(month, { tokens: ofMonth, usd: 0 }),
    ]);

  it("79 % is far, 80 % is near, 100 % is spent", () => {
    expect(standing([79, 0], 0)).toEqual({ near: [] });
    expect(standing([80, 0], 0).near).toMatchObject([{ share: 0.8 }]);
    expect(standing([99, 0], 0).exceeded).toBeUndefined();
    expect(standing([100, 0], 0).exceeded?.account).toBe(day);
    expect(standing([500, 0], 0).exceeded?.share).toBe(5);
  });

  it("whichever of tokens and money is spent first counts", () => {
    expect(standing([10, 0.81], 0).near[0]?.share).toBe(0.81);
    expect(standing([10, 1], 0).exceeded?.account).toBe(day);
  });

  it("of several that are spent the one that renews last is named; those nearly spent come nearest first", () => {
    expect(standing([100, 0], 1_000).exceeded?.account).toBe(month);
    expect(standing([85, 0], 950).near.map(({ account }) => account.period)).toEqual([
      "month",
      "day",
    ]);
  });

  it("a budget of nothing is spent from the beginning, one without a limit never", () => {
    expect(budgetUse({ ...day, tokens: 0 }, { tokens: 0, usd: 0 }).share).toBe(1);
    const { tokens: _tokens, usd: _usd, ...unlimited } = day;
    expect(budgetUse(unlimited, { tokens: 1e9, usd: 1e6 }).share).toBe(0);
  });
});
