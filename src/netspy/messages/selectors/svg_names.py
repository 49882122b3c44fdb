"""The SVG names with capitals that an HTML5 parser restores (WHATWG HTML, 13.2.6.1 and 13.2.6.5)."""

from __future__ import annotations

_ELEMENTS = """
altGlyph altGlyphDef altGlyphItem animateColor animateMotion animateTransform clipPath feBlend
feColorMatrix feComponentTransfer feComposite feConvolveMatrix feDiffuseLighting feDisplacementMap
feDistantLight feDropShadow feFlood feFuncA feFuncB feFuncG feFuncR feGaussianBlur feImage feMerge
feMergeNode feMorphology feOffset fePointLight feSpecularLighting feSpotLight feTile feTurbulence
foreignObject glyphRef linearGradient radialGradient textPath
"""

_ATTRIBUTES = """
attributeName attributeType baseFrequency baseProfile calcMode clipPathUnits diffuseConstant edgeMode
filterUnits glyphRef gradientTransform gradientUnits kernelMatrix kernelUnitLength keyPoints
keySplines keyTimes lengthAdjust limitingConeAngle markerHeight markerUnits markerWidth
maskContentUnits maskUnits numOctaves pathLength patternContentUnits patternTransform patternUnits
pointsAtX pointsAtY pointsAtZ preserveAlpha preserveAspectRatio primitiveUnits refX refY repeatCount
repeatDur requiredExtensions requiredFeatures specularConstant specularExponent spreadMethod
startOffset stdDeviation stitchTiles surfaceScale systemLanguage tableValues targetX targetY
textLength viewBox viewTarget xChannelSelector yChannelSelector zoomAndPan
"""

ELEMENTS = {name.lower(): name for name in _ELEMENTS.split()}
ATTRIBUTES = {name.lower(): name for name in _ATTRIBUTES.split()}
