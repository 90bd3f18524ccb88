"""What a role could learn: estimators over what it saw, pure functions of a view.

`attack` (an estimate from a view, apart from its score, with controls), `scores` (counts, areas,
correlations against chance), `tracking` and `linking` (arms through scores behind a scale and a
shift), `features` (contexts behind arms), `canaries` (what noise lets through), `inversion`
(contexts behind updates of linear models), `membership` (was a row among those a model was learnt
from?).
"""
