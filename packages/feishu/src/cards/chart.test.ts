import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { expect, it } from "vitest";
import { jsonBytes, maxCardBytes, renderCard, type CardElement, type CardStyle } from "./card.ts";
import { viewOf } from "./streams.fixture.ts";

const rows = [
  { month: "May", sold: 3 },
  { month: "June", sold: 5 },
];
const chart = { type: "bar", title: "Sold", data: rows, x: "month", y: "sold" };
const fence = (value: unknown): string => `\`\`\`chart\n${JSON.stringify(value)}\n\`\`\`\n`;

function drawn(answer: string, more: Partial<ReplyView> = {}, style: CardStyle = "formatted") {
  const view = viewOf(answer, { state: "answered", ...more });
  const { card } = renderCard(view, { cuts: [], number: 0 }, { streaming: false, style });
  const { elements } = card["body"] as { elements: CardElement[] };
  return elements.filter(({ tag }) => tag === "chart" || tag === "markdown");
}

it("stands where the model has written it, between the text before and after", () => {
  const shown = drawn(`Look:\n\n${fence(chart)}\nMore in **June**.`);
  expect(shown.map(({ tag, element_id: id, content }) => [tag, id, content])).toEqual([
    ["markdown", "answer", "Look:"],
    ["chart", "chart_2", undefined],
    ["markdown", "answer_2", "More in **June**."],
  ]);
  expect(shown[1]?.["chart_spec"]).toEqual({
    type: "bar",
    title: { text: "Sold" },
    data: [{ id: "values", values: rows }],
    xField: "month",
    yField: "sold",
  });
});

it("is read in the words of VChart, too, with series and slices", () => {
  const line = {
    type: "line",
    title: { text: "Sold" },
    data: [{ id: "a", values: rows.map((row) => ({ ...row, shop: "A" })) }],
    xField: "month",
    yField: "sold",
    seriesField: "shop",
  };
  const pie = { type: "pie", data: { values: rows }, categoryField: "month", valueField: "sold" };
  const [first, second] = drawn(`${fence(line)}${fence(pie)}`);
  expect(first?.["chart_spec"]).toMatchObject({ type: "line", seriesField: "shop" });
  expect(second?.["chart_spec"]).toMatchObject({ categoryField: "month", valueField: "sold" });
});

it("stays code where it is none, while the answer is written, and where the platform refuses one", () => {
  const wrong = [
    { ...chart, y: "month" },
    { ...chart, data: [] },
    { ...chart, type: "map" },
    { ...chart, onClick: "alert(1)", data: [{ month: "May" }] },
    "no chart",
  ];
  for (const value of wrong) {
    expect(drawn(fence(value)).map(({ tag }) => tag)).toEqual(["markdown"]);
  }
  expect(drawn("```chart\n{").map(({ tag }) => tag)).toEqual(["markdown"]);
  for (const shown of [
    drawn(fence(chart), { state: "running" }),
    drawn(fence(chart), {}, "chartless"),
  ]) {
    expect(shown.map(({ content }) => content)).toEqual([expect.stringContaining('"sold":3')]);
  }
});

it("of a tool comes below the answer; a card has five", () => {
  const tool = { name: "sales", state: "done", startedAtMs: 1 } as const;
  const tools = Array.from({ length: 7 }, (_, at): ShownTool => {
    return { ...tool, id: `c${at}`, chart: { ...chart, type: "bar" } };
  });
  const shown = drawn(`Here.\n${fence(chart)}`, { tools });
  expect(shown.map(({ tag }) => tag)).toEqual(["markdown", ...Array(5).fill("chart")]);
});

it("is left out where the card has no room for it", () => {
  const many = Array.from({ length: 100 }, (_, at) => ({
    month: `month ${at}`.repeat(5),
    sold: at,
  }));
  const big = { ...chart, type: "bar", data: many } as const;
  const tool = { name: "sales", state: "done", startedAtMs: 1 } as const;
  const tools = [1, 2, 3, 4, 5].map((at) => ({ ...tool, id: `c${at}`, chart: big }));
  const shown = drawn("Here.", { tools });
  expect(jsonBytes(shown)).toBeLessThan(maxCardBytes);
  expect(shown.map(({ tag }) => tag)).toEqual(["markdown"]);
});

it("a card with a table of seven columns is as wide as it can be, and no other", () => {
  const table = (columns: number): string =>
    ["a", "-", "1,234,567"].map((cell) => `|${`${cell}|`.repeat(columns)}`).join("\n");
  const widthOf = (answer: string): unknown => {
    const page = { cuts: [], number: 0 };
    const { card } = renderCard(viewOf(answer, {}), page, { streaming: false });
    return (card["config"] as CardElement)["width_mode"];
  };
  expect([widthOf(table(6)), widthOf(table(7))]).toEqual([undefined, "fill"]);
});
