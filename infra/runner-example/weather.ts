import { createRunner } from "@larkline/runner/create-runner";
import { defineTool } from "@larkline/tool-kit";
import { Type } from "typebox";

const outlooks = ["sunny", "cloudy", "rain", "wind"] as const;

const forecast = defineTool({
  name: "forecast",
  description:
    "Tomorrow's weather in a city. An example: it makes the weather up, the same for a city every time.",
  input: Type.Object(
    { city: Type.String({ minLength: 1, maxLength: 100 }) },
    { additionalProperties: false },
  ),
  effect: "pure",
  risk: "low",
  subject: "city",
  limits: { rate: { calls: 50, perMs: 1_000 } },
  run: ({ city }, { progress }) => {
    progress(0.5, `looking at the sky over ${city}`);
    const sum = [...city].reduce((total, letter) => total + (letter.codePointAt(0) ?? 0), 0);
    return { city, outlook: outlooks[sum % outlooks.length], celsius: sum % 35 };
  },
});

await createRunner({ name: "weather", tools: [forecast] });
