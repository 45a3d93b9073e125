import { useDeployment } from "./states-deployment.ts";
// Needs chats in which nothing was said.
import "./states-playground.suite.ts";
import "./states-card.suite.ts";
// Shows what the suites before have done.
import "./states-console.suite.ts";

useDeployment();
