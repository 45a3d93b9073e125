import { defineTool } from "@larkline/tool-kit";
import { Type } from "typebox";

export default defineTool({
  name: "greet",
  description: "Greets a person.",
  input: Type.Object({ name: Type.String() }),
  effect: "pure",
  run: ({ name }) => `hello ${name}`,
});
